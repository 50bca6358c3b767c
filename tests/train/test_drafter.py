"""`offramp train drafter` on a tiny model: what training sees is what the engine computes. Needs torch."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.core import Rows  # noqa: E402
from offramp.draft.pack import DrafterPack  # noqa: E402
from offramp.draft.side import side_config  # noqa: E402
from offramp.errors import InvalidRequestError, ResourceError  # noqa: E402
from offramp.llm.drafter_pack import side_model  # noqa: E402
from offramp.llm.loading import load_model  # noqa: E402
from offramp.model.executor import LayerExecutor  # noqa: E402
from offramp.model.quantize import dequantize  # noqa: E402
from offramp.native import build_executor  # noqa: E402
from offramp.testing.batches import chain, pack_rows  # noqa: E402
from offramp.testing.side import random_drafter  # noqa: E402
from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train import state as state_module  # noqa: E402
from offramp.train.drafter import fit as fit_module  # noqa: E402
from offramp.train.drafter.batches import pack_texts, split_texts  # noqa: E402
from offramp.train.drafter.distill import Divergence, forward_kl, target_distribution, tvd  # noqa: E402
from offramp.train.drafter.recipe import Recipe, check_taps, default_taps  # noqa: E402
from offramp.train.drafter.run import train_eagle  # noqa: E402
from offramp.train.drafter.side import SideNet, net_of, new_trained  # noqa: E402
from offramp.train.drafter.states import Text, capture, place_texts  # noqa: E402
from offramp.train.drafter.unroll import unroll, unrolled_loss  # noqa: E402
from offramp.train.drafter.validation import accepted_rates, expected_tokens  # noqa: E402
from offramp.train.exits.answers import Answer  # noqa: E402
from offramp.train.exits.work import open_work  # noqa: E402
from offramp.train.source import open_source  # noqa: E402

TAPS = (1, 2, 4)
V = 260
RECIPE = Recipe(
    width=48, vocabulary=200, max_tokens=20, minutes=60.0, steps=30, batch_rows=200, held_out=0.2, window=20, context=12
)


def train(model: str, prompts: Path, out: Path, recipe: Recipe = RECIPE) -> DrafterPack:
    work = out.with_name(f"{out.name}.work")
    return train_eagle(model, prompts, out, recipe, weights="q8", threads=1, work=work, say=lambda line: None)


def net_for(known: int = V, dtype: torch.dtype = torch.float32) -> SideNet:
    config = side_config(toy_config(), 48, 12)
    noise = torch.Generator().manual_seed(1)
    embedding = torch.randn(V, 64, generator=noise)
    norm = 0.5 + torch.rand(64, generator=noise)
    return SideNet(config, new_trained(config, 3, norm, 2), embedding, embedding[:known].to(dtype) / 4, norm, dtype)


def texts_of(rng: np.random.Generator, lengths: list[tuple[int, int]]) -> tuple[list[Text], np.ndarray]:
    texts, at = [], 0
    for number, (prompt, answer) in enumerate(lengths):
        tokens = rng.integers(0, V, prompt + answer).astype(np.int32)
        texts.append(Text(number, tokens, prompt - 1, at))
        at += prompt + answer - 1
    return texts, rng.standard_normal((at, 3, 64)).astype(np.float16)


@pytest.fixture
def executor() -> LayerExecutor:
    return build_executor(toy_source(toy_config(), seed=5, weights="q8"), num_pages=8, threads=1)


def test_captured_states_are_those_of_one_prefill(
    executor: LayerExecutor, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.train.drafter.states.CHUNK", 16)
    lengths = [(5, 9), (3, 1), (40, 20), (4, 3)]
    ids = [(rng.integers(0, V, p).tolist(), rng.integers(0, V, a).tolist()) for p, a in lengths]
    ids[3] = ([*ids[2][0][:38], 1, 2], [3, 4, 5])  # begins as the one before it
    answers = [Answer(i, tuple(prompt), tuple(answer)) for i, (prompt, answer) in enumerate(ids)]
    texts = place_texts(answers, 12, 10_000)
    assert [text.number for text in texts] == [0, 2, 3]
    assert [text.first for text in texts] == [4, 11, 11]
    assert [text.num_drafts for text in texts] == [8, 19, 2]
    states = capture(executor, answers, texts, TAPS, open_work(tmp_path, {}), lambda done: None)
    for text in texts:
        prompt, answer = ids[text.number]
        rows = pack_rows(chain([*prompt, *answer[:-1]]), [range(8)])
        h = executor.embed(rows)
        first = len(prompt) + len(answer) - 1 - text.num_rows
        assert text.tokens.tolist() == [*prompt, *answer][first:]
        for tap, layer in enumerate(TAPS):
            hidden = executor.run_layers(h, rows, 0, layer).numpy()[first:]
            np.testing.assert_array_equal(states[text.at : text.at + text.num_rows, tap], hidden.astype(np.float16))


def test_captures_are_bounded_and_go_on(executor: LayerExecutor, rng: np.random.Generator, tmp_path: Path) -> None:
    answers = [Answer(i, tuple(range(4 + i)), tuple(rng.integers(0, V, 10).tolist())) for i in range(6)]
    texts = place_texts(answers, 64, 57)
    assert len(texts) == 3, "13 + 14 + 15 rows fit, the 16 of the next do not"
    whole = capture(executor, answers, texts, TAPS, open_work(tmp_path / "whole", {}), lambda done: None)
    folder = open_work(tmp_path / "parts", {})
    capture(executor, answers, texts, TAPS, folder, lambda done: None)
    folder.note(captured=1)
    np.load(tmp_path / "parts" / "states.npy", mmap_mode="r+")[20:] = 0  # what a killed process did not reach
    again = capture(executor, answers, texts, TAPS, open_work(tmp_path / "parts", {}), lambda done: None)
    np.testing.assert_array_equal(again, whole)


def test_a_full_disk_is_told_before_it_is_written_to(
    executor: LayerExecutor, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    answers = [Answer(0, (1, 2), tuple(rng.integers(0, V, 10).tolist()))]
    texts = place_texts(answers, 64, 100)
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        with pytest.raises(ResourceError, match=r"no room for \d+ bytes of hidden states .*No space left"):
            capture(executor, answers, texts, TAPS, open_work(tmp_path, {}), lambda done: None)
    assert not (tmp_path / "states.npy").exists()
    states = capture(executor, answers, texts, TAPS, open_work(tmp_path, {}), lambda done: None)
    assert np.abs(states).max(axis=(1, 2)).all(), "it goes on once there is room"


def slow_drafts(net: SideNet, text: Text, states: np.ndarray, start: int, steps: int) -> list[torch.Tensor]:
    """The outputs of one draft, row by row, as they are made at run time: all places up to the start, then its own."""
    w = net.casted()
    own = states[text.at : text.at + text.num_rows].astype(np.float32)
    rows = [
        net.first(w, torch.tensor([text.tokens[t + 1]]).long(), torch.from_numpy(own[t : t + 1]))[0]
        for t in range(start + 1)
    ]
    found: list[torch.Tensor] = []
    for step in range(steps):
        if step:
            token = torch.tensor([text.tokens[start + step + 1]]).long()
            rows.append(net.next(w, token, found[-1][None])[0])
        s = torch.stack(rows)
        x = net.normed(s, w["attn_norm"])
        where = torch.arange(len(rows))
        k, v = net.heads(x, w["kv"], None).chunk(2, dim=1)
        k, q = net.rotated(k, where), net.heads(x, w["q"], where)[-1]
        seen = where > len(rows) - 1 - 12  # the window
        out = []
        for head in range(4):
            scores = (k[seen, head // 2] @ q[head]) / 4.0
            out.append(scores.softmax(dim=0) @ v[seen, head // 2])
        found.append(net.behind(w, s[-1:], torch.cat(out)[None])[0])
    return found


def test_drafts_are_unrolled_for_all_places_as_one_by_one(rng: np.random.Generator) -> None:
    net = net_for()
    texts, states = texts_of(rng, [(6, 14), (3, 2), (1, 4)])
    batch = pack_texts(texts, states, np.arange(V, dtype=np.int32))
    by_step = {drafted.step: drafted for drafted in unroll(net, net.casted(), batch, 3)}
    assert [len(by_step[step].rows) for step in (1, 2, 3)] == [13 + 1 + 3, 12 + 2, 11 + 1]
    starts = batch.starts
    for number, text in enumerate(texts):
        for start in range(text.first, text.num_rows - 1):
            steps = min(3, text.num_rows - 1 - start)
            for step, slow in enumerate(slow_drafts(net, text, states, start, steps), 1):
                [at] = np.flatnonzero(by_step[step].rows.numpy() == starts[number] + start + step - 1)
                torch.testing.assert_close(by_step[step].hidden[at], slow, rtol=1e-4, atol=1e-5)


def test_targets_are_what_the_target_says_of_known_tokens(rng: np.random.Generator) -> None:
    texts, states = texts_of(rng, [(2, 6)])
    ids = np.arange(0, V, 3, dtype=np.int32)
    batch = pack_texts(texts, states, ids)
    text = texts[0]
    for place, column in enumerate(batch.columns.tolist()):
        wanted = int(text.tokens[place + 2])
        assert column == (wanted // 3 if wanted % 3 == 0 else -1)
    np.testing.assert_array_equal(batch.finals, states[1:, 2].astype(np.float32))
    net = net_for(known=len(ids))
    p = target_distribution(net.normed(batch.finals, net.final_norm), net.head)
    logits = torch.nn.functional.rms_norm(batch.finals, (64,), net.final_norm, 1e-5) @ net.head.t()
    torch.testing.assert_close(p, logits.softmax(dim=1))


def test_parts_add_up_to_the_whole(rng: np.random.Generator) -> None:
    """But for the shares of tokens that are not known, which are those of each part."""
    net = net_for()
    texts, states = texts_of(rng, [(3, 9), (5, 12), (2, 7), (4, 4)])
    ids = np.arange(V, dtype=np.int32)
    parts = split_texts(texts, 2)
    assert sorted(text.number for part in parts for text in part) == [0, 1, 2, 3]
    w = net.casted()
    [whole, *halves] = [
        unrolled_loss(net, w, pack_texts(some, states, ids), 1, 1.0, forward_kl) for some in (texts, *parts)
    ]
    counts = [sum(text.num_drafts for text in part) for part in parts]
    mean = sum(count * loss for count, (loss, _) in zip(counts, halves, strict=True)) / sum(counts)
    torch.testing.assert_close(mean, whole[0], rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(whole[0], [w["first"], w["kv"], w["norm"]])
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(("divergence", "most"), [(forward_kl, 0.9), (tvd, 0.4)])
def test_a_net_learns_what_can_be_told(divergence: Divergence, most: float, rng: np.random.Generator) -> None:
    """Texts that count: the token after the next is known from the next."""
    net = net_for()
    texts, states = texts_of(rng, [(3, 20)] * 8)
    counting = [replace(text, tokens=(text.tokens[0] + np.arange(23, dtype=np.int32)) % V) for text in texts]
    ids = np.arange(V, dtype=np.int32)
    for text in counting:  # the target is sure of it
        states[text.at : text.at + 22, 2] = net.embedding[text.tokens[1:].astype(int)].numpy() * 3
    before, _ = accepted_rates(net, counting, states, ids, 3)
    optimizer = torch.optim.AdamW(net.trained.values(), lr=3e-3)
    for _ in range(60):
        loss, _ = unrolled_loss(net, net.trained, pack_texts(counting, states, ids), 3, 0.8, divergence)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after, tested = accepted_rates(net, counting, states, ids, 3)
    assert before[0] < 0.2 < most < min(after)
    assert tested[0] == 8 * 19


def test_a_pack_is_trained_and_kept_weights_draft_as_trained_ones(
    toy_model: str, prompts_file: Path, tmp_path: Path
) -> None:
    pack = train(toy_model, prompts_file, tmp_path / "pack")
    about = pack.config.provenance
    assert pack.config.taps == default_taps(4)
    assert 1 < pack.config.vocabulary <= 200
    assert about["steps"] == 30
    curve = about["curve"]
    assert [point["step"] for point in curve][-1] == 30
    assert len(curve) == fit_module.MEASURED
    expected = {point["step"]: expected_tokens(point["rates"]) for point in curve}
    best = about["best"]
    assert best["tokens_a_draft"] == pytest.approx(max(expected.values()), abs=2e-3)
    assert expected[best["step"]] == pytest.approx(best["tokens_a_draft"], abs=2e-3)
    tokens = [point["tokens"] for point in curve]
    assert tokens == sorted(tokens)
    assert tokens[-1] > about["tokens"], "the texts were read more than once"
    assert len(about["validation"]["accepted"]) == 3  # type: ignore[index]
    net = net_for()
    kept = net_of(pack.weights, replace(net, trained=dict(net.trained)))
    again = kept.weights(pack.weights.vocab_ids)
    np.testing.assert_array_equal(again.first.quants, pack.weights.first.quants)  # type: ignore[union-attr]
    np.testing.assert_array_equal(again.layer.v.quants, pack.weights.layer.v.quants)  # type: ignore[union-attr]


def test_the_layer_as_trained_is_the_layer_as_run(toy_model: str, rng: np.random.Generator) -> None:
    """Drafts of three tokens from every place, with the states and tokens of a text."""
    loaded = load_model(toy_model, weights="q8", threads=1)
    pack = random_drafter(loaded.config, taps=TAPS, width=48, window=12)
    side = side_model(loaded, pack)
    source = open_source(toy_model).weights("q8")
    config = side_config(loaded.config, 48, 12)
    embedding = torch.from_numpy(dequantize(source.matrix("embedding")))
    norm = torch.from_numpy(source.vector("final_norm"))
    blank = SideNet(config, new_trained(config, 3, norm, 0), embedding, embedding, norm)
    net = net_of(pack.weights, blank)
    [text], states = texts_of(rng, [(9, 16)])
    batch = pack_texts([text], states, np.arange(V, dtype=np.int32))
    with torch.no_grad():
        found = {drafted.step: drafted for drafted in unroll(net, net.casted(), batch, 3)}
    seen = states.astype(np.float32)
    for at, start in enumerate(range(text.first, text.num_rows - 3)):
        rows, last = side_rows(text.tokens[1 : start + 2], 0), np.array([start], np.int32)
        own, _ = side.run_first(rows, np.ascontiguousarray(seen[: start + 1]), last)
        for step in (1, 2, 3):
            trained, computed = found[step].hidden[at].numpy(), own.numpy()[0]
            assert np.abs(trained - computed).max() < 4e-3 * np.abs(computed).max(), (start, step)
            logits = (net.normed(found[step].hidden[at], net.trained["norm"]) @ net.head.t()).numpy()
            told = side.logits(own)[0]
            assert np.abs(logits - told).max() < 6e-3 * np.abs(told).max()
            own, _ = side.run_next(side_rows(text.tokens[start + step + 1 : start + step + 2], start + step), own)


def side_rows(tokens: np.ndarray, start: int) -> Rows:
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    pages = [np.arange(2, dtype=np.int32)]
    return Rows.plain(tokens.astype(np.int32), np.zeros(len(tokens), np.int32), positions, pages)


class KilledError(Exception):
    """Stands for a process that ends at any line."""


def test_an_interrupted_training_ends_as_one_that_was_not(
    toy_model: str, prompts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(toy_model, prompts_file, tmp_path / "whole")
    descend = fit_module.descend
    for deadly in (7, 19):
        with monkeypatch.context() as patch:
            patch.setattr(fit_module, "SAVE_SECONDS", 0.0)

            def dying(state, gradients, rate, deadly=deadly):  # type: ignore[no-untyped-def]
                if state.step == deadly:
                    raise KilledError
                descend(state, gradients, rate)

            patch.setattr(fit_module, "descend", dying)
            with pytest.raises(KilledError):
                train(toy_model, prompts_file, tmp_path / "parts")
    parts = train(toy_model, prompts_file, tmp_path / "parts")
    for name in ("first", "next"):
        np.testing.assert_array_equal(getattr(parts.weights, name).quants, getattr(whole.weights, name).quants)
    np.testing.assert_array_equal(parts.weights.norm, whole.weights.norm)
    curves = [
        [(p["step"], p["tokens"], p["rates"]) for p in pack.config.provenance["curve"]] for pack in (parts, whole)
    ]  # type: ignore[attr-defined]
    assert curves[0] == curves[1]
    assert parts.config.provenance["best"] == whole.config.provenance["best"]
    with pytest.raises(InvalidRequestError, match="another training: width differ"):
        train(toy_model, prompts_file, tmp_path / "parts", replace(RECIPE, width=64))


def test_impossible_taps_are_refused() -> None:
    for taps in ((), (4, 2), (2, 2, 4), (0, 4), (1, 3), (2, 5)):
        with pytest.raises(InvalidRequestError, match="impossible"):
            check_taps(taps, 4)
    check_taps((1, 4), 4)
    assert default_taps(30) == (2, 15, 30)
    assert default_taps(2) == (1, 2)
    assert state_module.SAVE_SECONDS > 0
