"""Hidden states and final distributions: those of one exact prefill, whatever was interrupted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp.errors import NumericError
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.testing.batches import chain, pack_rows
from offramp.testing.toy import toy_config, toy_source
from offramp.train.exits import capture as module
from offramp.train.exits.answers import Answer
from offramp.train.exits.capture import Captured, capture
from offramp.train.exits.targets import head_vocabulary, make_targets
from offramp.train.exits.work import WorkFolder, open_work
from offramp.train.prefill import halves

LAYERS = (1, 3)


@pytest.fixture
def executor() -> LayerExecutor:
    return build_executor(toy_source(toy_config(), seed=5, weights="q8"), num_pages=8, threads=1)


@pytest.fixture
def answers(rng: np.random.Generator) -> list[Answer]:
    lengths = [(5, 9), (3, 1), (40, 20), (2, 2)]
    ids = [(rng.integers(0, 260, p).tolist(), rng.integers(0, 260, a).tolist()) for p, a in lengths]
    return [Answer(i, tuple(prompt), tuple(answer)) for i, (prompt, answer) in enumerate(ids)]


def taken(executor: LayerExecutor, answers: list[Answer], folder: WorkFolder) -> Captured:
    return capture(executor, answers, LAYERS, folder, lambda done: None)


def test_captured_states_are_those_of_one_prefill(
    executor: LayerExecutor, answers: list[Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 16)
    captured = taken(executor, answers, open_work(tmp_path, {}))
    assert captured.numbers.tolist() == [0] * 8 + [2] * 19 + [3]
    answer = answers[2]
    rows = pack_rows(chain([*answer.prompt, *answer.answer[:-1]]), [range(8)])
    own = np.flatnonzero(captured.numbers == 2)
    h = executor.embed(rows)
    for layer in LAYERS:
        hidden = executor.run_layers(h, rows, 0, layer).numpy()[40:]
        np.testing.assert_array_equal(captured.hidden[layer][own], hidden.astype(np.float16))
    top = executor.top(executor.run_layers(h, rows, 0, 4).take(np.arange(40, 59, dtype=np.int32)), 64)
    np.testing.assert_array_equal(captured.best_ids[own], top.ids)
    np.testing.assert_array_equal(captured.best_logits[own], top.logits)
    np.testing.assert_array_equal(captured.log_sum_exp[own], top.log_sum_exp)


def test_a_shared_beginning_runs_once(executor: LayerExecutor, tmp_path: Path) -> None:
    answers = [Answer(0, (1, 2, 3, 4), (5, 6, 7)), Answer(1, (1, 2, 3, 9), (8, 7)), Answer(2, (1, 2, 3, 9), (8, 7, 6))]
    together = taken(executor, answers, open_work(tmp_path / "together", {}))
    at = 0
    for i, answer in enumerate(answers):
        alone = taken(executor, [answer], open_work(tmp_path / f"{i}", {}))
        for layer in LAYERS:
            own = together.hidden[layer][at : at + answer.num_rows]
            np.testing.assert_array_equal(own, alone.hidden[layer])
        at += answer.num_rows


def test_an_interrupted_capture_goes_on(executor: LayerExecutor, answers: list[Answer], tmp_path: Path) -> None:
    whole = taken(executor, answers, open_work(tmp_path / "whole", {}))
    folder = open_work(tmp_path / "parts", {})
    taken(executor, answers, folder)
    folder.note(captured=2)
    arrays = np.load(tmp_path / "parts" / "hidden-3.npy", mmap_mode="r+")
    arrays[8:] = 0  # what a killed process did not reach
    again = taken(executor, answers, open_work(tmp_path / "parts", {}))
    np.testing.assert_array_equal(again.hidden[3], whole.hidden[3])
    assert np.abs(np.asarray(again.hidden[3][8:], np.float32)).min(axis=1).max() > 0


def test_states_beyond_f16_are_refused(executor: LayerExecutor, answers: list[Answer], tmp_path: Path) -> None:
    with pytest.raises(NumericError, match="after 1 layers"):
        halves(np.array([[7e4]], np.float32), 1)


def test_targets_are_the_final_distribution_among_known_tokens(
    executor: LayerExecutor, answers: list[Answer], tmp_path: Path
) -> None:
    captured = taken(executor, answers, open_work(tmp_path, {}))
    known = np.unique(np.concatenate([captured.best_ids[:20, 0], captured.best_ids[20:, 5]]))
    targets = make_targets(captured, known.astype(np.int32))
    assert (targets.labels[:20] >= 0).all()
    np.testing.assert_array_equal(known[targets.labels[:20]], captured.best_ids[:20, 0])
    lost = ~np.isin(captured.best_ids[:, 0], known)
    assert lost.any()
    assert (targets.labels[lost] == -1).all()
    np.testing.assert_allclose(targets.probabilities.sum(axis=1), 1.0, rtol=1e-5)
    share = np.exp(captured.best_logits[0] - captured.log_sum_exp[0]) * np.isin(captured.best_ids[0], known)
    np.testing.assert_allclose(targets.probabilities[0], share / share.sum(), rtol=1e-5)


def test_the_vocabulary_is_what_answers_use_most() -> None:
    answers = [Answer(0, (9,), (5, 5, 5, 5, 7, 7, 7, 2, 2, 1))]
    assert head_vocabulary(answers, 0.7, 99).tolist() == [5, 7]
    assert head_vocabulary(answers, 1.0, 99).tolist() == [1, 2, 5, 7]
    assert head_vocabulary(answers, 1.0, 1).tolist() == [5]
