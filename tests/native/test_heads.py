"""Exit and drafter heads: native and twin bit for bit, and what a head shares with the model's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from offramp.core import Ids
from offramp.errors import CorruptModelError
from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.executor import FINAL, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.model.hidden import ArrayHidden
from offramp.model.weights import take_rows
from offramp.native import _native, build_executor, kernel_paths
from offramp.native.packed import gather, pack
from offramp.testing import arithmetic
from offramp.testing.batches import chain, pack_rows
from offramp.testing.heads import random_head
from offramp.testing.program import same_bits
from offramp.testing.toy import ToyFormat, convert, toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONFIGS = {
    "round": toy_config(num_layers=2, vocab_size=128),
    "odd": toy_config(
        num_layers=3,
        hidden_size=37,
        intermediate_size=11,
        num_heads=3,
        num_kv_heads=1,
        head_dim=10,
        rope=RopeConfig(base=500.0, rotary_dim=6),
        vocab_size=77,
        tie_embeddings=False,
    ),
}
WEIGHTS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
PATHS = kernel_paths()
MAX_ROWS = 17
REDUCED: Ids = np.array([0, 2, 3, 15, 16, 17, 30, 31, 33, 34, 40, 47, 48, 49, 64, 70, 76], np.int32)


def heads(config: ModelConfig, weights: ToyFormat) -> dict[str, HeadWeights]:
    """Every combination that matters; ranks below, at and above what the layers' buffers hold."""
    return {
        "own": HeadWeights(),
        "reduced": HeadWeights(vocab_ids=REDUCED),
        "one token": HeadWeights(vocab_ids=REDUCED[5:6]),
        "all tokens": HeadWeights(vocab_ids=np.arange(config.vocab_size, dtype=np.int32)),
        "norm": HeadWeights(norm=random_head(config, seed=1).norm),
        "adapter": random_head(config, seed=2, rank=5, weights=weights),
        "wide adapter": random_head(config, seed=3, rank=130, weights=weights, vocab_ids=REDUCED),
        "matrix": random_head(config, seed=4, weights=weights, own_matrix=True),
        "everything": random_head(config, seed=5, rank=16, weights=weights, vocab_ids=REDUCED, own_matrix=True),
        "another format": random_head(config, seed=6, rank=8, weights="f32" if weights == "q8" else "q8"),
    }


def states(config: ModelConfig, count: int = MAX_ROWS, seed: int = 0) -> ArrayHidden:
    h = np.random.default_rng(seed).standard_normal((count, config.hidden_size)) * 3
    return ArrayHidden(h.astype(np.float32))


@cache
def truth(name: str, weights: ToyFormat) -> dict[str, arithmetic.F32]:
    """What the twin says of `states`, by head."""
    config = CONFIGS[name]
    twin = TwinExecutor(toy_source(config, seed=11, weights=weights), num_pages=1)
    return {head: twin.logits(states(config), twin.add_head(given)) for head, given in heads(config, weights).items()}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", CONFIGS)
def test_native_equals_the_twin_for_1_to_17_rows(name: str, weights: ToyFormat, path: str) -> None:
    config, expected = CONFIGS[name], truth(name, weights)
    h = states(config)
    for threads in (1, 2):
        model = build_executor(toy_source(config, seed=11, weights=weights), num_pages=1, threads=threads, path=path)
        added = {head: model.add_head(given) for head, given in heads(config, weights).items()}
        for count in range(1, MAX_ROWS + 1):
            rows = h.take(np.arange(count, dtype=np.int32))
            for head, number in added.items():
                got = model.logits(rows, number)
                assert same_bits(got, expected[head][:count]), (head, count, threads)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_twin_is_the_page(name: str) -> None:
    config = CONFIGS[name]
    source = toy_source(config, seed=11)
    head, h = heads(config, "f32")["everything"], states(config)
    assert head.norm is not None
    assert head.input_norm is not None
    assert head.down is not None
    assert head.up is not None
    assert head.matrix is not None
    n = arithmetic.rms_norm(h.numpy(), head.input_norm, config.norm_eps)
    a = arithmetic.matmul(n, head.down)
    adapted = h.numpy() + arithmetic.matmul(a / (np.float32(1) + arithmetic.exp(-a)), head.up)
    expected = arithmetic.matmul(arithmetic.rms_norm(adapted, head.norm, config.norm_eps), head.matrix)
    twin = TwinExecutor(source, num_pages=1)
    assert same_bits(twin.logits(h, twin.add_head(head)), expected)


@pytest.fixture(params=["twin", *PATHS])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(path: str, weights: ToyFormat = "q8", name: str = "odd") -> LayerExecutor:
    source = toy_source(CONFIGS[name], seed=11, weights=weights)
    return (
        TwinExecutor(source, num_pages=1)
        if path == "twin"
        else build_executor(source, num_pages=1, threads=2, path=path)
    )


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_reduced_head_has_the_columns_of_the_full_one(path: str, weights: ToyFormat) -> None:
    model = make(path, weights)
    h = states(model.config)
    for full in (HeadWeights(), random_head(model.config, seed=2, rank=5, weights=weights)):
        everything = model.logits(h, model.add_head(full))
        for ids in (REDUCED, REDUCED[3:4], REDUCED[::2]):
            reduced = model.add_head(replace(full, vocab_ids=ids))
            assert same_bits(model.logits(h, reduced), everything[:, ids])
            assert (model.head_ids(reduced) == ids).all()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_head_without_weights_is_the_models_own_at_every_depth(path: str, weights: ToyFormat) -> None:
    """B74: exit logits at the last layer are the model's, and at layer j they are lm_head(norm(h_j))."""
    model = make(path, weights)
    source = toy_source(model.config, seed=11, weights=weights)
    head = model.add_head(HeadWeights())
    assert model.head_ids(head) is None
    rows = pack_rows(chain([5, 9, 60, 31]), [[0]])
    h = model.embed(rows)
    for depth in range(model.config.num_layers + 1):
        normed = arithmetic.rms_norm(h.numpy(), source.vector("final_norm"), model.config.norm_eps)
        got = model.logits(h, head)
        assert same_bits(got, arithmetic.matmul(normed, source.matrix("lm_head")))
        assert same_bits(got, model.logits(h, FINAL))
        if depth < model.config.num_layers:
            h = model.run_layers(h, rows, depth, depth + 1)


def test_a_head_changes_no_bit_of_anything_else(path: str) -> None:
    rows = pack_rows(chain(list(range(20))), [[0]])

    def outputs(model: LayerExecutor) -> list[np.ndarray]:
        h = model.run_layers(model.embed(rows), rows, 0, model.config.num_layers)
        top = model.top(h, 7)
        return [h.numpy(), model.logits(h), top.ids, top.logits, top.log_sum_exp]

    model = make(path)
    before = outputs(model)
    for given in heads(model.config, "q8").values():
        number = model.add_head(given)
        model.logits(states(model.config), number)
        assert all(same_bits(a, b) for a, b in zip(outputs(model), before, strict=True))


def test_top_of_a_reduced_head_names_real_tokens(path: str) -> None:
    model = make(path)
    h = states(model.config)
    for given in (HeadWeights(vocab_ids=REDUCED), heads(model.config, "q8")["everything"]):
        head = model.add_head(given)
        logits = model.logits(h, head)
        for k in (1, 4, len(REDUCED)):
            top = model.top(h, k, head)
            order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
            assert (top.ids == REDUCED[order]).all()
            assert same_bits(top.logits, np.take_along_axis(logits, order, axis=1))
            assert same_bits(top.log_sum_exp, arithmetic.log_sum_exp(logits))
        for k in (0, len(REDUCED) + 1):
            with pytest.raises((AssertionError, ValueError)):
                model.top(h, k, head)


def test_ties_of_a_reduced_head_go_to_the_lowest_id(path: str) -> None:
    model = make(path)
    equal = convert(np.zeros((len(REDUCED), model.config.hidden_size), np.float32), "f32")
    top = model.top(states(model.config, 2), 3, model.add_head(HeadWeights(vocab_ids=REDUCED, matrix=equal)))
    assert top.ids.tolist() == [REDUCED[:3].tolist()] * 2


def test_a_subset_of_a_reduced_head_goes_by_token(path: str) -> None:
    model = make(path)
    h = states(model.config)
    head = model.add_head(random_head(model.config, seed=3, rank=4, vocab_ids=REDUCED))
    some = REDUCED[[6, 0, 6, 16]]
    assert same_bits(model.logits(h, head, some), model.logits(h, head)[:, [6, 0, 6, 16]])
    for stranger in (1, 77, -1):
        with pytest.raises(AssertionError, match="does not know"):
            model.logits(h, head, np.array([0, stranger], np.int32))


def test_nan_and_huge_states_spread_alike() -> None:
    config = CONFIGS["odd"]
    h = states(config, 6).numpy().copy()
    h[1, 4], h[2, 0], h[3] = np.nan, np.inf, 0
    h[4] *= np.float32(1e30)
    twin = make("twin")
    for given in heads(config, "q8").values():
        expected = twin.logits(ArrayHidden(h.copy()), twin.add_head(given))
        assert np.isnan(expected[1]).all()
        for kernels in PATHS:
            model = make(kernels)
            assert same_bits(model.logits(ArrayHidden(h.copy()), model.add_head(given)), expected)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(77, 37), (160, 64)])
def test_gathering_packed_rows_is_packing_those_rows(weights: ToyFormat, num_outputs: int, num_inputs: int) -> None:
    rng = np.random.default_rng(3)
    matrix = convert(rng.standard_normal((num_outputs, num_inputs)).astype(np.float32), weights)
    for count in (1, 15, 16, 17, 50):
        ids = rng.integers(num_outputs, size=count).astype(np.int32)
        got, expected = gather(pack(matrix), ids), pack(take_rows(matrix, ids.astype(np.intp)))
        assert (got.out_features, got.in_features, got.format) == (count, num_inputs, expected.format)
        assert (got.tiles == expected.tiles).all()
    for stranger in (-1, num_outputs):
        with pytest.raises(ValueError, match="out of range"):
            gather(pack(matrix), np.array([stranger], np.int32))


def test_heads_of_equal_vocabularies_share_their_rows() -> None:
    """So that the second exit asked in a step finds them in the cache."""
    from offramp.native.heads import PackedHeads

    config = CONFIGS["round"]
    source = toy_source(config, seed=1)
    kept = PackedHeads(config, pack(source.matrix("embedding")), source.vector("final_norm"))
    one = kept.pack(HeadWeights(vocab_ids=REDUCED))
    two = kept.pack(random_head(config, seed=1, rank=4, vocab_ids=REDUCED.copy()))
    assert one.matrix is two.matrix
    assert kept.pack(HeadWeights(vocab_ids=REDUCED[:3])).matrix is not one.matrix


def test_a_vocabulary_is_kept_as_it_was_given(path: str) -> None:
    model = make(path)
    ids = REDUCED.copy()
    head = model.add_head(HeadWeights(vocab_ids=ids))
    ids[:] = 0
    assert (model.head_ids(head) == REDUCED).all()


def test_unknown_heads_and_heads_that_do_not_fit_are_refused(path: str) -> None:
    model = make(path)
    h = states(model.config, 1)
    for ask in (model.logits, model.head_ids):
        with pytest.raises(AssertionError, match="no head"):
            ask(*((h, 1) if ask == model.logits else (-1,)))  # type: ignore[operator]
    with pytest.raises(CorruptModelError, match=r"norm has shape \[3\], the model calls for \[37\]"):
        model.add_head(HeadWeights(norm=np.ones(3, np.float32)))
    assert model.add_head(HeadWeights()) == 1


def test_the_extension_refuses_what_it_could_not_run() -> None:
    config = CONFIGS["round"]
    model = build_executor(toy_source(config, seed=1), num_pages=1, threads=1)
    native = model._native
    norm = np.ones(64, np.float32)
    good = pack(convert(np.zeros((5, 64), np.float32), "q8"))
    thin = pack(convert(np.zeros((5, 63), np.float32), "q8"))
    tall = pack(convert(np.zeros((129, 64), np.float32), "q8"))
    up = pack(convert(np.zeros((64, 5), np.float32), "q8"))
    for bad in (
        {"matrix": thin},
        {"matrix": tall},
        {"norm": np.ones(63, np.float32)},
        {"input_norm": norm, "down": thin, "up": up},
        {"input_norm": norm, "down": good, "up": good},
    ):
        given: dict[str, object] = {"matrix": good, "norm": norm, "input_norm": None, "down": None, "up": None, **bad}
        with pytest.raises(ValueError, match=r"wrong (shape|size)"):
            native.add_head(**given)  # type: ignore[arg-type]
    out = np.zeros((1, 128), np.float32)
    for number in (-1, 1):
        with pytest.raises(ValueError, match="no such head"):
            native.logits(np.zeros((1, 64), np.float32), out, number)
    assert _native.packed_bytes(_native.Q8, 5, 64) == len(good.tiles)
