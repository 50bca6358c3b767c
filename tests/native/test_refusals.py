"""What the extension refuses, so that a wrong index or array never becomes a wild read or write."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Ids, Rows
from offramp.errors import InvalidRequestError, UnsupportedModelError
from offramp.model.tensors import layer_weights
from offramp.native import NativeExecutor, _native, build_executor, default_threads
from offramp.testing.batches import chain, pack_rows, tree
from offramp.testing.toy import toy_config, toy_source

CONFIG = toy_config(num_layers=2)
SOURCE = toy_source(CONFIG, seed=1)
PAGES = 3


@pytest.fixture(scope="module")
def model() -> NativeExecutor:
    return build_executor(SOURCE, num_pages=PAGES, threads=2)


def ids(*values: int) -> Ids:
    return np.array(values, dtype=np.int32)


GOOD = pack_rows([*chain([1, 2, 3]), *tree([4, 5], [-1, 0], sequence=1, start=2)], [[0], [1, 2]])
BAD: dict[str, Rows] = {
    "token id": replace(GOOD, tokens=ids(1, 2, CONFIG.vocab_size, 4, 5)),
    "token": replace(GOOD, tokens=ids(1, -1, 3, 4, 5)),
    "sequence index": replace(GOOD, sequence=ids(0, 0, 0, 1, 2)),
    "position": replace(GOOD, positions=ids(0, 1, -2, 2, 3)),
    "slot outside": replace(GOOD, slots=ids(0, 1, 32, 2, 3)),
    "prefix_len": replace(GOOD, prefix_lens=ids(0, 1, 3, 2, 2)),
    "ancestors don't reach": replace(GOOD, prefix_lens=ids(0, 1, 2, 2, 1)),
    "ancestor slot": replace(GOOD, ancestor_slots=ids(64)),
    "ancestors cut short": replace(GOOD, ancestor_slots=ids()),
    "ancestor_starts must ascend": replace(GOOD, ancestor_starts=ids(0, 0, 5, 0, 0, 1)),
    "starts must begin": replace(GOOD, ancestor_starts=ids(1, 1, 1, 1, 1, 1)),
    "starts arrays too short": replace(GOOD, ancestor_starts=ids(0, 1)),
    "page id": replace(GOOD, page_ids=ids(0, 1, PAGES)),
    "page_starts must ascend": replace(GOOD, page_starts=ids(0, 1 << 20, 3)),
    "pages cut short": replace(GOOD, page_starts=ids(0, 1, 2)),
    "different lengths": replace(GOOD, slots=ids(0, 1)),
}


def test_good_rows_pass(model: NativeExecutor) -> None:
    assert len(model.run_layers(model.embed(GOOD), GOOD, 0, 2)) == len(GOOD)


@pytest.mark.parametrize("what", BAD)
def test_rows_that_point_anywhere_else(model: NativeExecutor, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        model.embed(BAD[what])


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (1, 0), (0, 3), (1, 3), (2, 2), (2, 4), (3, 4)])
def test_layer_ranges_out_of_bounds(start: int, stop: int) -> None:
    model = build_executor(SOURCE, num_pages=PAGES, threads=1)
    h = model.embed(GOOD)
    if (start, stop) != (2, 2):
        with pytest.raises(ValueError, match="layer range"):
            model.run_layers(h, GOOD, start, stop)
    side = model.add_side_layer(layer_weights(SOURCE, 0))
    assert side == 2
    model.run_layers(h, GOOD, side, side + 1)
    for first, last in [(0, 3), (1, 3), (2, 4)]:
        with pytest.raises(ValueError, match="layer range"):
            model.fill(h, GOOD, first, last)


def test_slots_and_vocabulary_ids_out_of_range(model: NativeExecutor) -> None:
    h = model.embed(GOOD)
    for slot in (-1, PAGES * 32):
        with pytest.raises(ValueError, match="slot out of range"):
            model.copy_slots(ids(0), ids(slot))
        with pytest.raises(ValueError, match="slot out of range"):
            model.copy_slots(ids(slot), ids(0))
    with pytest.raises(ValueError, match="as many"):
        model.copy_slots(ids(0, 1), ids(2))
    for token in (-1, CONFIG.vocab_size):
        with pytest.raises(ValueError, match="vocabulary id"):
            model.logits(h, vocab_ids=ids(token))
    for k in (0, CONFIG.vocab_size + 1):
        with pytest.raises(ValueError, match="k out of range"):
            model.top(h, k)


def bare(**changes: object) -> _native.Executor:
    sizes: dict[str, object] = {
        "hidden": 8,
        "intermediate": 8,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 4,
        "vocab": 10,
        "norm_eps": 1e-5,
        "embedding_scale": 1.0,
        "attention_scale": 0.5,
        "gelu": False,
        "layers": 1,
        "kv_f16": True,
        "num_pages": 1,
        "threads": 1,
        "path": "portable",
    }
    return _native.Executor(**{**sizes, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 0},
        {"kv_heads": 3},
        {"heads": 66, "kv_heads": 2},
        {"num_pages": 0},
        {"threads": 0},
        {"path": "no-such"},
    ],
)
def test_impossible_shapes(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positive|range|path"):
        bare(**change)


def test_an_executor_without_a_head_has_no_logits() -> None:
    with pytest.raises(ValueError, match="no head"):
        bare().logits(np.zeros((1, 8), np.float32), np.zeros((1, 10), np.float32))


@pytest.mark.parametrize(("index", "width"), [(-1, 2), (1, 2), (0, 0), (0, 3)])
def test_rope_tables_come_in_order_and_fit_a_head(index: int, width: int) -> None:
    table = np.zeros((8, width), np.float32)
    with pytest.raises(ValueError, match="rope table"):
        bare().set_rope(index, table, table)


@pytest.mark.parametrize("wrong", [np.zeros((8, 4)), np.zeros((8, 8), np.float32)[:, ::2]])
def test_arrays_are_never_converted_on_the_way(wrong: np.ndarray) -> None:
    right = np.zeros((8, 2), np.float32)
    bare().set_rope(0, right, right)
    with pytest.raises(TypeError):
        bare().set_rope(0, wrong, wrong)
    with pytest.raises((TypeError, ValueError)):
        bare().set_head(None, wrong)


def test_more_query_heads_than_the_kernels_share_are_refused_by_name() -> None:
    config = toy_config(num_heads=33, num_kv_heads=1, head_dim=2, hidden_size=66)
    with pytest.raises(UnsupportedModelError, match="33 query heads"):
        build_executor(toy_source(config, seed=1), num_pages=1)


@pytest.mark.parametrize("options", [{"kv": "f8"}, {"threads": 0}, {"threads": 257}, {"path": "gpu"}])
def test_options_of_the_executor(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        build_executor(SOURCE, **{"num_pages": 1, **options})  # type: ignore[arg-type]


def test_more_threads_than_cores_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="offramp"):
        model = build_executor(SOURCE, num_pages=PAGES, threads=default_threads() + 1)
    assert "usable cores" in caplog.text
    assert len(model.run_layers(model.embed(GOOD), GOOD, 0, 2)) == len(GOOD)


def test_executors_with_different_thread_counts_share_the_pool() -> None:
    expected = None
    models = [build_executor(SOURCE, num_pages=PAGES, threads=threads) for threads in (3, 1, 2)]
    for _ in range(40):
        for model in models:
            states = model.run_layers(model.embed(GOOD), GOOD, 0, 2).numpy()
            expected = states if expected is None else expected
            np.testing.assert_array_equal(states, expected)
