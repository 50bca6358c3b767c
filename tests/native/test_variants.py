"""What other families have and Llama lacks, against the numpy twin, bit for bit: biases, norms, windows, ropes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from offramp.core import Ids
from offramp.model.config import LayerAttention, LayerForm, ModelConfig, RopeConfig
from offramp.model.executor import LayerExecutor
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import layer_weights
from offramp.native import build_executor, kernel_paths
from offramp.testing.batches import Row, chain, pack_rows, tree
from offramp.testing.program import PROGRAM_PAGES, Outputs, Program, same_bits
from offramp.testing.toy import ToyFormat, toy_config, toy_source
from offramp.testing.twin import KvType, TwinExecutor

ROPE = RopeConfig(base=5000.0, rotary_dim=12)
LOCAL = RopeConfig(base=300.0, rotary_dim=8)
PLAIN, UNROTATED = LayerAttention(rope=ROPE), LayerAttention(rope=None)


def windows(*widths: int | None, rope: RopeConfig = ROPE) -> tuple[LayerAttention, ...]:
    return tuple(LayerAttention(rope=rope, window=width) for width in widths)


def config(form: LayerForm, attention: tuple[LayerAttention, ...], **changes: object) -> ModelConfig:
    sizes: dict[str, object] = {
        "num_layers": len(attention),
        "hidden_size": 44,
        "intermediate_size": 50,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 12,
        "vocab_size": 77,
        "rope": ROPE,
    }
    return toy_config(**{**sizes, "form": form, "attention": attention, **changes})


CONFIGS = {
    "qwen": config(LayerForm(qkv_bias=True, qk_norm=True), windows(None, 13)),
    "gemma": config(
        LayerForm(qk_norm=True, post_norms=True, activation="gelu_tanh"),
        (LayerAttention(rope=LOCAL, window=5), PLAIN, LayerAttention(rope=LOCAL, window=33)),
        embedding_scale=44**0.5,
        query_scale=0.2,
    ),
    "unrotated": config(LayerForm(), (*windows(40, rope=LOCAL), UNROTATED, LayerAttention(rope=None, window=32))),
}
PATHS = kernel_paths()
NUM_STEPS = 12


def slow(value: object) -> object:
    """A parameter for whoever asks for the whole matrix."""
    return pytest.param(value, marks=pytest.mark.slow)


WIDER = [pytest.param(*each, marks=pytest.mark.slow) for each in (("f32", "f32"), ("q8", "f16"), ("q4", "f32"))]
"""Formats of weights and K/V, when all are wanted."""


@cache
def twin_walk(name: str, weights: ToyFormat, kv: KvType) -> Outputs:
    source = toy_source(CONFIGS[name], seed=11, weights=weights)
    side = layer_weights(toy_source(CONFIGS[name], seed=12, weights=weights), 0)
    return Program(TwinExecutor(source, kv=kv, num_pages=PROGRAM_PAGES), side, seed=7).run(NUM_STEPS)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("weights", "kv"), [("f32", "f16"), ("q8", "f32"), ("q4", "f16"), *WIDER])
@pytest.mark.parametrize("name", CONFIGS)
def test_native_equals_the_twin_bit_for_bit(name: str, weights: ToyFormat, kv: KvType, path: str) -> None:
    source = toy_source(CONFIGS[name], seed=11, weights=weights)
    side = layer_weights(toy_source(CONFIGS[name], seed=12, weights=weights), 0)
    executor = build_executor(source, kv=kv, num_pages=PROGRAM_PAGES, threads=2, path=path)
    got = Program(executor, side, seed=7).run(NUM_STEPS)
    assert [same_bits(g, e) for g, e in zip(got, twin_walk(name, weights, kv), strict=True)] == [True] * len(got)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weights", [slow("f32"), "q8", slow("q4")])
@pytest.mark.parametrize("name", CONFIGS)
def test_one_to_64_rows_equal_rows_alone(name: str, weights: ToyFormat, path: str) -> None:
    source = toy_source(CONFIGS[name], seed=4, weights=weights)
    model = build_executor(source, num_pages=2, threads=2, path=path)
    tokens = np.random.default_rng(0).integers(77, size=64).tolist()
    alone = np.concatenate([states(model, chain([token], start=i)) for i, token in enumerate(tokens)])
    for count in range(2, 65):
        np.testing.assert_array_equal(states(model, chain(tokens[:count])), alone[:count])


def states(model: LayerExecutor, batch: list[Row]) -> Ids:
    """Bits of the last layer's states, [rows, hidden]."""
    rows = pack_rows(batch, [range(model.num_pages)])
    return model.run_layers(model.embed(rows), rows, 0, model.config.num_layers).numpy().view(np.int32)


LONG = 571
LONG_TOKENS = np.random.default_rng(1).integers(77, size=LONG).tolist()


@cache
def long_truth(width: int) -> Ids:
    source = toy_source(config(LayerForm(), windows(width), max_context=640), seed=3, weights="q8")
    return states(TwinExecutor(source, num_pages=20), chain(LONG_TOKENS))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("width", [slow(1), 31, slow(64), 300, slow(560)])
def test_windows_in_long_contexts(width: int, path: str) -> None:
    """Few rows walk a long context in passes that threads share: the window holds there too, and in trees."""
    source = toy_source(config(LayerForm(), windows(width), max_context=640), seed=3, weights="q8")
    truth = long_truth(width)
    model = build_executor(source, num_pages=20, threads=2, path=path)
    begin = LONG - 24
    np.testing.assert_array_equal(states(model, chain(LONG_TOKENS[:begin])), truth[:begin])
    for size in (1, 2, 5, 8):
        rows = states(model, chain(LONG_TOKENS[begin : begin + size], start=begin))
        np.testing.assert_array_equal(rows, truth[begin : begin + size])
        begin += size
    right = LONG_TOKENS[begin : begin + 4]
    tokens, parents = [right[0], 9, right[1], right[2], 7, right[3]], [-1, -1, 0, 2, 2, 3]
    np.testing.assert_array_equal(
        states(model, tree(tokens, parents, start=begin))[[0, 2, 3, 5]], truth[begin : begin + 4]
    )


@pytest.mark.parametrize("path", ["twin", *PATHS])
@pytest.mark.parametrize("width", [1, 8, 32, 40])
def test_what_a_window_hides_is_skipped_not_multiplied_by_zero(width: int, path: str) -> None:
    """NaN in K/V outside the window changes no bit."""
    source = toy_source(config(LayerForm(), windows(width)), seed=3)
    tokens = LONG_TOKENS[:90]
    outputs = []
    for poisoned in (False, True):
        model: LayerExecutor = (
            TwinExecutor(source, num_pages=3)
            if path == "twin"
            else build_executor(source, num_pages=3, threads=2, path=path)
        )
        states(model, chain(tokens))
        if poisoned:
            rows = pack_rows(chain(tokens[: 70 - width + 1]), [range(3)])
            bad = np.full((len(rows), source.config.hidden_size), np.nan, np.float32)
            model.run_layers(ArrayHidden(bad), rows, 0, 1)
        outputs.append(states(model, chain(tokens[70:], start=70)))
        outputs.append(states(model, tree([1, 2, 3, 4], [-1, 0, -1, 1], start=70)))
    np.testing.assert_array_equal(outputs[0], outputs[2])
    np.testing.assert_array_equal(outputs[1], outputs[3])
