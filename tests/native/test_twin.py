"""The native executor against the numpy twin, bit for bit, over random walks through every operation."""

from __future__ import annotations

from functools import cache

import pytest

import offramp.native
from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.tensors import LayerWeights, layer_weights
from offramp.testing.program import PROGRAM_PAGES, Outputs, Program, same_bits
from offramp.testing.toy import ToyFormat, toy_config, toy_source
from offramp.testing.twin import KvType, TwinExecutor

pytestmark = pytest.mark.skipif(not hasattr(offramp.native, "build_executor"), reason="no native executor")

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
NUM_STEPS = 14


def walk(config_name: str, weights: ToyFormat, kv: KvType, threads: int, path: str) -> Outputs:
    config = CONFIGS[config_name]
    source = toy_source(config, seed=11, weights=weights)
    executor = offramp.native.build_executor(source, kv=kv, num_pages=PROGRAM_PAGES + 2, threads=threads, path=path)
    return Program(executor, side_layer(config, weights), seed=5).run(NUM_STEPS)


@cache
def twin_walk(config_name: str, weights: ToyFormat, kv: KvType) -> Outputs:
    config = CONFIGS[config_name]
    twin = TwinExecutor(toy_source(config, seed=11, weights=weights), kv=kv, num_pages=PROGRAM_PAGES + 2)
    return Program(twin, side_layer(config, weights), seed=5).run(NUM_STEPS)


def side_layer(config: ModelConfig, weights: ToyFormat) -> LayerWeights:
    return layer_weights(toy_source(config, seed=12, weights=weights), 0)


@pytest.mark.parametrize("path", ["avx2", "portable"])
@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("config_name", CONFIGS)
def test_native_equals_the_twin_bit_for_bit(config_name: str, weights: ToyFormat, kv: KvType, path: str) -> None:
    expected = twin_walk(config_name, weights, kv)
    for threads in (1, 2):
        got = walk(config_name, weights, kv, threads, path)
        assert len(got) == len(expected)
        differing = [i for i, (g, e) in enumerate(zip(got, expected, strict=True)) if not same_bits(g, e)]
        assert not differing, f"outputs {differing} of {len(expected)} differ with {threads} threads"
