"""The side layer: native == numpy, bit for bit, and both what the formulas of side.py say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Rows
from offramp.draft.pack import DrafterPack
from offramp.draft.side import side_config
from offramp.draft.side_model import SideModel
from offramp.llm.drafter_pack import native_side
from offramp.model.config import LayerForm
from offramp.model.quantize import dequantize
from offramp.native import NativeExecutor, build_executor
from offramp.native.beside import side_executor
from offramp.native.executor import kernel_paths
from offramp.native.side import NativeSideExecutor
from offramp.testing import arithmetic
from offramp.testing.side import composed_side, random_drafter, twin_side, units
from offramp.testing.toy import ToyFormat, convert, toy_config, toy_source

CONFIG = toy_config(hidden_size=40, intermediate_size=56, num_heads=4, num_kv_heads=2, head_dim=10, vocab_size=90)
IDS = np.array([0, 3, 17, 21, 40, 89], np.int32)


def rows_of(tokens: Sequence[int], start: int) -> Rows:
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    return Rows.plain(
        np.array(tokens, np.int32), np.zeros(len(tokens), np.int32), positions, [np.array([2, 0, 1], np.int32)]
    )


def drafted(model: SideModel, tokens: Sequence[int], states: np.ndarray) -> list[np.ndarray]:
    """Some places with states, then three rows from the layer's own output; all that comes of them."""
    model.fill(rows_of(tokens[:4], 0), states[:4])
    own, guesses = model.run_first(rows_of(tokens[4:9], 4), states[4:9], np.arange(5, dtype=np.int32))
    assert guesses == []
    told = [own.numpy()]
    own = own.take(np.array([4], np.int32))
    for step in range(3):
        top = model.executor.top(own, 2, model.head)
        told += [top.ids, top.logits, top.log_sum_exp, model.logits(own)]
        own, guesses = model.run_next(rows_of([int(top.ids[0, 0])], 9 + step), own, 2)
        told += [own.numpy(), np.array(guesses)]
    return told


def assert_same(mine: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> None:
    for here, there in zip(mine, others, strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ids", [None, IDS], ids=["all tokens", "some tokens"])
@pytest.mark.parametrize("weights", ["q8", "q4", "f32"])
def test_native_is_the_twin_bit_for_bit(
    weights: ToyFormat, ids: np.ndarray | None, tied: bool, rng: np.random.Generator
) -> None:
    config = replace(CONFIG, tie_embeddings=tied, embedding_scale=1.0 if tied else 3.0)
    source = toy_source(config, 3, weights)
    pack = random_drafter(config, weights=weights, vocab_ids=ids, window=6)
    target = build_executor(source, num_pages=4, threads=2)
    states = rng.standard_normal((9, 2, 40)).astype(np.float32) * np.array([1, 50], np.float32)[:, None]
    tokens = rng.integers(0, 90, 9).tolist()
    mine = drafted(native_side(target, pack, target.num_pages), tokens, states)
    assert_same(mine, drafted(twin_side(source, pack, 4), tokens, states))
    if ids is not None:
        assert set(np.concatenate([mine[at].ravel() for at in (1, 7, 13)]).tolist()) <= set(ids.tolist())
        assert np.isneginf(mine[4][0, 1])


def side_over(target: NativeExecutor, pack: DrafterPack) -> NativeSideExecutor:
    config = side_config(target.config, pack.config.width, pack.config.window)
    return side_executor(target, config, pack.weights.layer, pack.weights.norm, num_pages=40)


def batched(model: SideModel, num_rows: int, chosen: np.ndarray, states: np.ndarray) -> list[np.ndarray]:
    """Sequences of one row each: one call with states, and one behind what came out of it."""
    tokens, each = (np.arange(num_rows, dtype=np.int32) * 7) % 90, np.arange(num_rows, dtype=np.int32)
    pages = [np.array([index], np.int32) for index in range(num_rows)]
    own, guesses = model.run_first(Rows.plain(tokens, each, np.zeros_like(each), pages), states, chosen, 2)
    told = [own.numpy(), np.array(guesses)]
    some = [pages[index] for index in chosen]
    rows = Rows.plain(tokens[chosen] + 1, np.arange(len(chosen), dtype=np.int32), np.ones(len(chosen), np.int32), some)
    own, guesses = model.run_next(rows, own, 3)
    assert np.array(guesses).shape == (len(chosen), 3, 2)
    return [*told, own.numpy(), np.array(guesses)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("path", kernel_paths())
@pytest.mark.parametrize("weights", ["q8", "q4", "f32"])
def test_one_call_is_its_parts_one_by_one(
    weights: ToyFormat, path: str, threads: int, rng: np.random.Generator
) -> None:
    """For few rows, whose inputs each thread makes for itself, and for many; with some rows left out."""
    pack = random_drafter(CONFIG, weights=weights, vocab_ids=IDS)
    target = build_executor(toy_source(CONFIG, 3, weights), num_pages=40, threads=threads, path=path)
    composed = composed_side(side_over(target, pack), pack)
    one_call = native_side(target, pack, 40)
    for num_rows in (1, 2, 4, 5, 17, 33):
        states = rng.standard_normal((num_rows, 2, 40)).astype(np.float32)
        for step in (1, 2, 5):
            chosen = np.arange(num_rows - 1, -1, -step, dtype=np.int32)[::-1].copy()
            assert_same(batched(one_call, num_rows, chosen, states), batched(composed, num_rows, chosen, states))


def test_what_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    pack = random_drafter(CONFIG)
    target = build_executor(toy_source(CONFIG, 3), num_pages=4, threads=1)
    model = native_side(target, pack, 4)
    rows, states = rows_of([7, 8], 0), rng.standard_normal((2, 2, 40)).astype(np.float32)
    for chosen in ([1, 0], [0, 2], [-1], [1, 1]):
        with pytest.raises(ValueError, match="chosen rows must rise"):
            model.run_first(rows, states, np.array(chosen, np.int32))
    with pytest.raises(ValueError, match="states have the wrong shape"):
        model.run_first(rows, states[:, :1].copy(), np.array([1], np.int32))
    with pytest.raises(ValueError, match="k out of range"):
        model.run_first(rows, states, np.array([1], np.int32), 91)
    model.executor._joins.append(model.executor._joins[0])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no such join"):
        replace(model, first=2).run_first(rows, states, np.array([1], np.int32))
    matrix = convert(rng.standard_normal((40, 50)).astype(np.float32), "q8")
    with pytest.raises(ValueError, match="join's matrix has the wrong shape"):
        model.executor.add_join(matrix, np.ones(50, np.float32))


def test_embedding_and_head_are_the_targets_own(rng: np.random.Generator) -> None:
    source = toy_source(CONFIG, 3, "q8")
    pack = random_drafter(CONFIG)
    target = build_executor(source, num_pages=4, threads=1)
    model = native_side(target, pack, target.num_pages)
    rows = rows_of([7, 8], 0)
    np.testing.assert_array_equal(model.executor.embed(rows).numpy(), target.embed(rows).numpy())
    hidden, _ = model.run_first(rows, rng.standard_normal((2, 2, 40)).astype(np.float32), np.array([0, 1], np.int32))
    normed = arithmetic.rms_norm(hidden.numpy(), pack.weights.norm, CONFIG.norm_eps)
    np.testing.assert_array_equal(model.logits(hidden), arithmetic.matmul(normed, source.matrix("embedding")))


def test_the_input_joins_units(rng: np.random.Generator) -> None:
    """Of the layer, by a product in floats."""
    source = toy_source(CONFIG, 3, "f32")
    pack = random_drafter(CONFIG, weights="f32")
    seen = []
    executor = side_over(build_executor(source, num_pages=4, threads=1), pack)

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(executor, name)

        def run_layers(self, h, rows, start, stop):  # type: ignore[no-untyped-def]
            seen.append(h.numpy())
            return executor.run_layers(h, rows, start, stop)

    model = composed_side(Watched(), pack)  # type: ignore[arg-type]
    states = 30 * rng.standard_normal((1, 2, 40)).astype(np.float32)
    rows = rows_of([5], 0)
    own, _ = model.run_first(rows, states, np.array([0], np.int32))
    model.run_next(rows_of([9], 1), own)
    e = executor.embed(rows).numpy()[0]
    joined = np.concatenate([v / np.sqrt(np.mean(v**2)) for v in (e, states[0, 0], states[0, 1])])
    expected = dequantize(pack.weights.first) @ (joined * pack.weights.first_norm)
    np.testing.assert_allclose(seen[0][0], expected, rtol=1e-3, atol=1e-4)
    e = executor.embed(rows_of([9], 1)).numpy()[0]
    joined = np.concatenate([v / np.sqrt(np.mean(v**2)) for v in (e, own.numpy()[0])])
    expected = dequantize(pack.weights.next) @ (joined * pack.weights.next_norm)
    np.testing.assert_allclose(seen[1][0], expected, rtol=1e-3, atol=1e-4)


def test_units_have_a_root_mean_square_of_one(rng: np.random.Generator) -> None:
    parts = rng.standard_normal((3, 2, 500)).astype(np.float32) * np.array([0.5, 900], np.float32)[:, None]
    joined = units(parts, 1e-6).reshape(3, 2, 500)
    np.testing.assert_allclose(np.sqrt((joined**2).mean(axis=2)), 1.0, rtol=1e-4)
    np.testing.assert_allclose(
        joined[1, 1] / np.linalg.norm(joined[1, 1]), parts[1, 1] / np.linalg.norm(parts[1, 1]), rtol=1e-4
    )
    assert not units(np.zeros((1, 2, 8), np.float32), 1e-6).any()


def test_the_layer_is_plain_whatever_the_target_is() -> None:
    form = LayerForm(qkv_bias=True, qk_norm=True, post_norms=True, activation="gelu_tanh")
    config = side_config(replace(CONFIG, form=form, query_scale=0.3, embedding_scale=4.0), 16, 10)
    assert config.form == LayerForm()
    assert (config.num_layers, config.intermediate_size, config.embedding_scale) == (1, 16, 4.0)
    assert config.attention_of(0).window == 10
    assert config.attention_scale == 1 / np.sqrt(10)
