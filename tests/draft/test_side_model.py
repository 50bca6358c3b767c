"""The side layer: native == numpy, bit for bit, and both what the formulas of side.py say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Rows
from offramp.draft.side import side_config, units
from offramp.draft.side_model import SideModel
from offramp.llm.drafter_pack import native_side
from offramp.model.config import LayerForm
from offramp.model.quantize import dequantize
from offramp.native import build_executor
from offramp.native.product import NativeProduct
from offramp.testing import arithmetic
from offramp.testing.side import random_drafter, twin_side
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
    told = []
    model.fill(rows_of(tokens[:4], 0), states[:4])
    own = model.run_first(rows_of(tokens[4:9], 4), states[4:9])
    told.append(own.numpy())
    own = own.take(np.array([4], np.int32))
    for step in range(3):
        top = model.top(own, 2)
        told += [top.ids, top.logits, top.log_sum_exp, model.logits(own)]
        own = model.run_next(rows_of([int(top.ids[0, 0])], 9 + step), own)
        told.append(own.numpy())
    return told


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ids", [None, IDS], ids=["all tokens", "some tokens"])
@pytest.mark.parametrize("weights", ["q8", "f32"])
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
    twin = drafted(twin_side(source, pack, 4), tokens, states)
    for here, there in zip(mine, twin, strict=True):
        np.testing.assert_array_equal(here, there)
    if ids is not None:
        assert set(np.concatenate([mine[at].ravel() for at in (1, 6, 11)]).tolist()) <= set(ids.tolist())
        assert np.isneginf(mine[4][0, 1])


def test_embedding_and_head_are_the_targets_own(rng: np.random.Generator) -> None:
    source = toy_source(CONFIG, 3, "q8")
    pack = random_drafter(CONFIG)
    target = build_executor(source, num_pages=4, threads=1)
    model = native_side(target, pack, target.num_pages)
    rows = rows_of([7, 8], 0)
    np.testing.assert_array_equal(model.executor.embed(rows).numpy(), target.embed(rows).numpy())
    hidden = model.run_first(rows, rng.standard_normal((2, 2, 40)).astype(np.float32))
    normed = arithmetic.rms_norm(hidden.numpy(), pack.weights.norm, CONFIG.norm_eps)
    np.testing.assert_array_equal(model.logits(hidden), arithmetic.matmul(normed, source.matrix("embedding")))


def test_the_input_joins_units(rng: np.random.Generator) -> None:
    """Of the layer, by a product in floats."""
    source = toy_source(CONFIG, 3, "f32")
    pack = random_drafter(CONFIG, weights="f32")
    seen = []
    model = native_side(build_executor(source, num_pages=4, threads=1), pack, 4)
    run = model.executor.run_layers

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(model.executor, name)

        def run_layers(self, h, rows, start, stop):  # type: ignore[no-untyped-def]
            seen.append(h.numpy())
            return run(h, rows, start, stop)

    watched = replace(model, executor=Watched())  # type: ignore[arg-type]
    states = 30 * rng.standard_normal((1, 2, 40)).astype(np.float32)
    rows = rows_of([5], 0)
    own = watched.run_first(rows, states)
    watched.run_next(rows_of([9], 1), own)
    e = model.executor.embed(rows).numpy()[0]
    joined = np.concatenate([v / np.sqrt(np.mean(v**2)) for v in (e, states[0, 0], states[0, 1])])
    expected = dequantize(pack.weights.first) @ (joined * pack.weights.first_norm)
    np.testing.assert_allclose(seen[0][0], expected, rtol=1e-3, atol=1e-4)
    e = model.executor.embed(rows_of([9], 1)).numpy()[0]
    joined = np.concatenate([v / np.sqrt(np.mean(v**2)) for v in (e, own.numpy()[0])])
    expected = dequantize(pack.weights.next) @ (joined * pack.weights.next_norm)
    np.testing.assert_allclose(seen[1][0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weights", ["f32", "q8", "q4"])
@pytest.mark.parametrize("shape", [(5, 33), (40, 160), (300, 7)])
def test_a_product_is_a_norm_and_a_matrix(weights: ToyFormat, shape: tuple[int, int], rng: np.random.Generator) -> None:
    matrix = convert(rng.standard_normal(shape).astype(np.float32), weights)
    norm = rng.uniform(0.5, 1.5, shape[1]).astype(np.float32)
    product = NativeProduct(matrix, norm, epsilon=1e-5, threads=2, path="portable")
    for num_rows in (1, 3, 40):
        x = rng.standard_normal((num_rows, shape[1])).astype(np.float32)
        np.testing.assert_array_equal(product(x), arithmetic.matmul(arithmetic.rms_norm(x, norm, 1e-5), matrix))


def test_units_have_a_root_mean_square_of_one(rng: np.random.Generator) -> None:
    parts = rng.standard_normal((3, 2, 500)).astype(np.float32) * np.array([0.5, 900], np.float32)[:, None]
    joined = units(parts, 1e-6)
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
