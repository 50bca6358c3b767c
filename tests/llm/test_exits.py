"""Early exits through the Python front door: what runs is what was asked for, and the report says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp import LLM, RequestOptions, RequestOutput, SamplingParams
from offramp.core import Ids
from offramp.exits import threshold_policy
from offramp.exits.predictors import LinearPredictor
from offramp.exits.similarity import Similarity
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.llm.serving import Serving
from offramp.native import NativeExecutor
from tests.llm.exiting import ALWAYS, DEPTH, NEVER, certified, serving, toy_pack

PROMPTS = ["Water boils at", "x", "hello hello hello " * 5]
GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=2, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, seed=5, max_tokens=24, logprobs=2, ignore_eos=True)
TOKENS = RequestOptions(report="tokens")

Open = Callable[..., LLM]


@pytest.fixture
def pack(tmp_path: Path, toy_path: Path) -> Path:
    return toy_pack(tmp_path / "mine", toy_path, predictors="linear")


@pytest.fixture
def unchecked(toy_path: Path, pack: Path, own_cache: Path) -> Open:
    """The tiny model with raw exit settings."""

    def make(threshold: object, **settings: Any) -> LLM:
        options = {"exits": pack, "mode": "unchecked", **settings}
        return LLM(str(toy_path), threads=1, exit_threshold=threshold, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def plain(toy_path: Path, own_cache: Path) -> LLM:
    return LLM(str(toy_path), threads=1, mode="full")


def answers(outputs: Sequence[RequestOutput]) -> list[object]:
    """Everything but depths and times."""
    return [(o.outputs[0].token_ids, o.outputs[0].logprobs, o.outputs[0].text) for o in outputs]


def depths(output: RequestOutput) -> list[int]:
    layers = output.outputs[0].exit_layers
    assert layers is not None
    return layers


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("batching", ["compact", "barrier"])
def test_a_threshold_out_of_reach_is_full_depth(
    unchecked: Open, plain: LLM, params: SamplingParams, fill: str, batching: str
) -> None:
    llm = unchecked(1.5, exit_fill=fill, exit_batching=batching, exit_predictor="similarity:0")
    outputs = llm.generate(PROMPTS, params, TOKENS)
    assert answers(outputs) == answers(plain.generate(PROMPTS, params))
    assert {layer for output in outputs for layer in depths(output)} == {DEPTH}
    assert all(
        (o.report.mode, o.report.mean_exit_layer, o.report.exact_kv) == ("unchecked", DEPTH, True) for o in outputs
    )
    assert llm.statistics.num_asked_per_layer.total() > 0


@pytest.mark.parametrize(("threshold", "layer"), [(ALWAYS, 1), ({3: ALWAYS}, 3), ("2:0,3:0", 2)])
def test_tokens_leave_at_the_first_exit_that_lets_them(unchecked: Open, threshold: object, layer: int) -> None:
    [output] = unchecked(threshold).generate(PROMPTS[0], GREEDY, TOKENS)
    assert depths(output) == [DEPTH, *[layer] * 23]
    assert output.report.mean_exit_layer == pytest.approx((DEPTH + 23 * layer) / 24)
    assert (output.report.exits, output.report.exact_kv, output.report.draft) == ("mine", True, "off")


def test_projected_kv_is_told_and_never_shared(unchecked: Open, plain: LLM) -> None:
    llm, prompt = unchecked(ALWAYS, exit_fill="propagate"), list(range(5, 60))
    [first] = llm.generate([prompt], GREEDY)
    assert not first.report.exact_kv
    longer = [*prompt, *first.outputs[0].token_ids]
    lossless = RequestOptions(mode="lossless")
    mine = llm.generate([longer], GREEDY, lossless)
    assert mine[0].report.cached_tokens == 32
    assert mine[0].report.exact_kv
    assert answers(mine) == answers(plain.generate([longer], GREEDY))


@pytest.mark.parametrize("batching", ["compact", "barrier"])
def test_tokens_are_the_same_alone_and_in_a_batch(unchecked: Open, batching: str) -> None:
    llm = unchecked({1: 0.02, 3: 0.01}, exit_measure="margin", exit_batching=batching)
    together = llm.generate(PROMPTS, SAMPLED, TOKENS)
    alone = [llm.generate(prompt, SAMPLED, TOKENS)[0] for prompt in PROMPTS]
    assert answers(together) == answers(alone)
    found = [layer for output in together for layer in depths(output)]
    assert [layer for output in alone for layer in depths(output)] == found
    assert len(set(found)) > 1


def test_full_and_lossless_with_a_pack_loaded_call_none_of_its_parts(
    toy_path: Path, pack: Path, own_cache: Path, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = certified(toy_path, pack, 0.05)
    heads: list[int] = []
    ranges: list[tuple[int, int]] = []
    own_logits, own_layers = NativeExecutor.logits, NativeExecutor.run_layers

    def logits(self: NativeExecutor, h: Any, head: int = 0, *more: Any) -> Any:
        heads.append(head)
        return own_logits(self, h, head, *more)  # type: ignore[arg-type]

    def run_layers(self: NativeExecutor, h: Any, rows: Any, start: int, stop: int) -> Any:
        ranges.append((start, stop))
        return own_layers(self, h, rows, start, stop)

    def raising(*args: object, **named: object) -> object:
        raise AssertionError("called at full depth")

    monkeypatch.setattr(NativeExecutor, "logits", logits)
    monkeypatch.setattr(NativeExecutor, "run_layers", run_layers)
    for kind, method in ((ThresholdPolicy, "decide"), (LinearPredictor, "scores"), (Similarity, "scores")):
        monkeypatch.setattr(kind, method, raising)
    for method in ("fill", "summarize"):
        monkeypatch.setattr(NativeExecutor, method, raising)
    monkeypatch.setattr(threshold_policy, "values", raising)
    llm = LLM.from_loaded(loaded, serving(pack, threshold=ALWAYS, predictor="pack:0"))
    expected = answers(plain.generate(PROMPTS, SAMPLED))
    num_calls = len(heads), len(ranges)
    for mode in ("full", "lossless"):
        heads.clear(), ranges.clear()
        assert answers(llm.generate(PROMPTS, SAMPLED, RequestOptions(mode=mode))) == expected
        assert (len(heads), len(ranges)) == num_calls
        assert (set(heads), set(ranges)) == ({0}, {(0, DEPTH)})
    statistics = llm.statistics
    assert not statistics.num_asked_per_layer
    assert not statistics.num_exits_per_layer


def test_calibrated_runs_the_certified_policy(toy_path: Path, pack: Path, own_cache: Path, unchecked: Open) -> None:
    loaded = certified(toy_path, pack, 0.02, 0.1)
    llm = LLM.from_loaded(loaded, serving(pack, "calibrated", risk=0.02))
    for risk, layer in ((None, 3), (0.1, 2)):
        [output] = llm.generate(PROMPTS[0], GREEDY, RequestOptions(risk=risk, report="tokens"))
        assert answers([output]) == answers(unchecked({layer: ALWAYS}).generate(PROMPTS[0], GREEDY))
        assert depths(output) == [DEPTH, *[layer] * 23]
        assert (output.report.mode, output.report.risk) == ("calibrated", risk or 0.02)
        assert (output.report.exits, output.report.mode_reason) == ("mine", None)


def test_a_request_outside_the_certificate_runs_full_and_says_so(
    toy_path: Path, pack: Path, own_cache: Path, plain: LLM
) -> None:
    llm = LLM.from_loaded(certified(toy_path, pack, 0.05), serving(pack, "calibrated", risk=0.05))
    inside, outside = llm.generate(PROMPTS[:2], [GREEDY, SAMPLED], TOKENS)
    assert (inside.report.mode, outside.report.mode) == ("calibrated", "full")
    assert outside.report.mode_reason == "temperature=0.9 differs from the calibration's 0"
    assert (outside.report.risk, outside.report.exits) == (None, None)
    assert set(depths(outside)) == {DEPTH}
    assert answers([outside]) == answers(plain.generate(PROMPTS[1], SAMPLED))


def test_each_request_has_its_own_mode(unchecked: Open, plain: LLM) -> None:
    llm = unchecked(ALWAYS, mode="lossless")
    early = llm.generate(PROMPTS[0], GREEDY, RequestOptions(mode="unchecked", exits="mine"))
    assert early[0].report.mean_exit_layer < DEPTH
    exact = llm.generate(PROMPTS[0], GREEDY)
    assert (exact[0].report.mode, exact[0].report.draft) == ("lossless", "auto")
    assert answers(exact) == answers(plain.generate(PROMPTS[0], GREEDY)) != answers(early)


def test_streams_tell_the_depth_of_each_step(unchecked: Open) -> None:
    llm = unchecked({2: ALWAYS})
    deltas = list(llm.stream(PROMPTS[0], GREEDY))
    assert [delta.exit_layer for delta in deltas] == [DEPTH, *[2] * 23]
    report = deltas[-1].report
    assert report is not None
    assert (report.mode, report.exact_kv) == ("unchecked", True)


@pytest.mark.parametrize("threshold", ["beta:0.4", "rate:0.5", "depth:2.5", "queue:0"])
def test_adaptive_thresholds_run_in_unchecked_only(unchecked: Open, threshold: str) -> None:
    llm = unchecked(threshold, exit_measure="margin", max_num_seqs=1)
    outputs = llm.generate(PROMPTS * 2, SAMPLED)
    assert {output.report.mode for output in outputs} == {"unchecked"}
    assert llm.statistics.num_asked_per_layer.total() > 0
    if threshold != "beta:0.4":  # which needs more labels than these
        assert llm.statistics.mean_exit_layer < DEPTH


def test_a_held_queue_counts_the_requests_that_wait(unchecked: Open) -> None:
    deep = unchecked("queue:100", exit_measure="margin", max_num_seqs=1)
    rushed = unchecked("queue:0", exit_measure="margin", max_num_seqs=1)
    for llm in (deep, rushed):
        llm.generate(PROMPTS * 4, SAMPLED)
    assert rushed.statistics.mean_exit_layer < deep.statistics.mean_exit_layer == DEPTH


@pytest.mark.parametrize("threshold", [ALWAYS, "rate:1"])
@pytest.mark.parametrize("predictor", ["pack:0.5", "similarity:0.9"])
def test_heads_are_asked_only_where_the_predictor_lets_them(unchecked: Open, predictor: str, threshold: object) -> None:
    llm = unchecked(threshold, exit_predictor=predictor)
    llm.generate(PROMPTS, SAMPLED)
    assert 0 < llm.statistics.num_head_rows_per_layer.total() < llm.statistics.num_asked_per_layer.total()


def test_falling_thresholds_let_later_tokens_leave(unchecked: Open) -> None:
    shown = unchecked(NEVER, exit_measure="margin").generate(PROMPTS[0], GREEDY, TOKENS)
    assert set(depths(shown[0])) == {DEPTH}
    level = 0.0006
    still = unchecked(level, exit_measure="margin").statistics
    steady, falling = (
        unchecked(level, exit_measure="margin", exit_decay=decay).generate(PROMPTS, GREEDY, TOKENS)
        for decay in (None, 4)
    )
    assert still.num_steps == 0
    mean = [np.mean([depths(output) for output in outputs]) for outputs in (steady, falling)]
    assert mean[1] <= mean[0]


def test_a_reduced_head_gives_readable_logprobs(toy_path: Path, tmp_path: Path, own_cache: Path) -> None:
    known: Ids = np.arange(40, 90, dtype=np.int32)
    folder = toy_pack(tmp_path / "few", toy_path, vocab_ids=known, kind="adapter")
    llm = LLM(str(toy_path), threads=1, exits=folder, mode="unchecked", exit_threshold=ALWAYS)
    [output] = llm.generate(PROMPTS[0], SAMPLED)
    assert set(output.outputs[0].token_ids[1:]) <= set(known.tolist())
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    assert all(np.isfinite(entry.logprob) for entry in logprobs)


def test_the_settings_of_a_stock_engine_are_unchanged() -> None:
    assert Serving().exits.pack is None
    assert Serving().default_draft == "auto"
