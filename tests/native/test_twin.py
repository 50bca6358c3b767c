"""The native executor against the numpy twin, bit for bit, over random walks through every operation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import F32Matrix, LayerWeights, layer_weights
from offramp.native import build_executor, kernel_paths
from offramp.testing.batches import chain, pack_rows
from offramp.testing.program import PROGRAM_PAGES, Outputs, Program, same_bits
from offramp.testing.toy import ToyFormat, toy_config, toy_source
from offramp.testing.twin import KvType, TwinExecutor

CONFIGS = {
    "round": toy_config(num_layers=2, vocab_size=128),
    "odd": toy_config(
        num_layers=3,
        hidden_size=37,
        intermediate_size=50,
        num_heads=3,
        num_kv_heads=1,
        head_dim=10,
        rope=RopeConfig(base=500.0, rotary_dim=6),
        vocab_size=77,
        tie_embeddings=False,
    ),
    "thin": toy_config(num_layers=2, hidden_size=8, intermediate_size=1, num_heads=1, num_kv_heads=1, head_dim=2),
    "wide": toy_config(
        num_layers=2, hidden_size=72, intermediate_size=200, num_heads=9, num_kv_heads=3, head_dim=64, vocab_size=301
    ),
}
WEIGHTS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
KV: tuple[KvType, ...] = ("f16", "f32")
PATHS = kernel_paths()
NUM_STEPS = 10


def walk(config_name: str, weights: ToyFormat, kv: KvType, threads: int, path: str) -> Outputs:
    config = CONFIGS[config_name]
    source = toy_source(config, seed=11, weights=weights)
    executor = build_executor(source, kv=kv, num_pages=PROGRAM_PAGES + 2, threads=threads, path=path)
    return Program(executor, side_layer(config, weights), seed=5).run(NUM_STEPS)


@cache
def twin_walk(config_name: str, weights: ToyFormat, kv: KvType) -> Outputs:
    config = CONFIGS[config_name]
    twin = TwinExecutor(toy_source(config, seed=11, weights=weights), kv=kv, num_pages=PROGRAM_PAGES + 2)
    return Program(twin, side_layer(config, weights), seed=5).run(NUM_STEPS)


def side_layer(config: ModelConfig, weights: ToyFormat) -> LayerWeights:
    return layer_weights(toy_source(config, seed=12, weights=weights), 0)


def cell(config_name: str, weights: ToyFormat, kv: KvType, path: str) -> object:
    """Walks of the twin through the wide shape take long: by default it has one K/V type for each format."""
    slow = config_name == "wide" and kv != ("f32" if weights == "q8" else "f16")
    return pytest.param(config_name, weights, kv, path, marks=[pytest.mark.slow] if slow else [])


GRID = [cell(*each) for each in product(CONFIGS, WEIGHTS, KV, PATHS)]


@pytest.mark.parametrize(("config_name", "weights", "kv", "path"), GRID)
def test_native_equals_the_twin_bit_for_bit(config_name: str, weights: ToyFormat, kv: KvType, path: str) -> None:
    expected = twin_walk(config_name, weights, kv)
    for threads in (1, 2):
        got = walk(config_name, weights, kv, threads, path)
        assert len(got) == len(expected)
        differing = [i for i, (g, e) in enumerate(zip(got, expected, strict=True)) if not same_bits(g, e)]
        assert not differing, f"outputs {differing} of {len(expected)} differ with {threads} threads"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("factor", [30.0, 2e5])
def test_extremes_agree_too(factor: float, path: str) -> None:
    """Huge norms drive exp to its clamps; still larger ones overflow f16 K/V, and NaN spreads to the same places."""
    source = toy_source(CONFIGS["round"], seed=4, weights="q8")
    loud = replace(source, vectors={role: vector * np.float32(factor) for role, vector in source.vectors.items()})
    side = layer_weights(loud, 1)
    expected = Program(TwinExecutor(loud, num_pages=PROGRAM_PAGES), side, seed=6).run(5)
    assert any(np.isnan(output).any() for output in expected) == (factor > 1e5)
    got = Program(build_executor(loud, num_pages=PROGRAM_PAGES, threads=2, path=path), side, seed=6).run(5)
    assert [same_bits(g, e) for g, e in zip(got, expected, strict=True)] == [True] * len(expected)


@pytest.mark.parametrize("path", PATHS)
def test_top_breaks_ties_by_the_lowest_id_and_puts_nan_last(path: str) -> None:
    config = toy_config(num_layers=1, vocab_size=300)
    source = toy_source(config, seed=5)
    embedding = source.matrix("embedding")
    assert isinstance(embedding, F32Matrix)
    repeated = embedding.values[np.arange(300) % 7].copy()
    repeated[40] = np.nan
    tied = replace(source, matrices={**source.matrices, "embedding": F32Matrix(repeated)})
    h = np.random.default_rng(0).standard_normal((3, config.hidden_size)).astype(np.float32)
    h[1] = np.nan
    native, twin = build_executor(tied, num_pages=1, threads=2, path=path), TwinExecutor(tied, num_pages=1)
    for k in (1, 20, 256, 257, 300):  # few are kept on the way, many sorted afterwards
        got, expected = native.top(ArrayHidden(h.copy()), k), twin.top(ArrayHidden(h.copy()), k)
        assert (got.ids == expected.ids).all()
        assert same_bits(got.logits, expected.logits)
        assert same_bits(got.log_sum_exp, expected.log_sum_exp)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_path_equals_portable_at_larger_sizes(weights: ToyFormat) -> None:
    config = toy_config(
        num_layers=2, hidden_size=330, intermediate_size=901, num_heads=6, head_dim=56, vocab_size=1003, max_context=400
    )
    source = toy_source(config, seed=8, weights=weights)
    rng = np.random.default_rng(9)
    batch = [
        *chain(rng.integers(1003, size=70).tolist(), sequence=0),
        *chain(rng.integers(1003, size=27).tolist(), sequence=1),
    ]
    rows = pack_rows(batch, [range(3), range(3, 4)])

    def outputs(path: str, threads: int) -> Outputs:
        executor = build_executor(source, num_pages=4, threads=threads, path=path)
        h = executor.run_layers(executor.embed(rows), rows, 0, 2)
        return [h.numpy(), executor.logits(h.take(np.arange(0, len(h), 3, dtype=np.int32)))]

    expected = outputs("portable", 1)
    for path, threads in product(kernel_paths(), (1, 2)):
        if (path, threads) != ("portable", 1):
            assert all(same_bits(g, e) for g, e in zip(outputs(path, threads), expected, strict=True)), path
