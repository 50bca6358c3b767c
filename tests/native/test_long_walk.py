"""Few rows over a long context are attended in passes that threads share: the bits stay those of one walk."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from offramp.core import Ids
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor, kernel_paths
from offramp.testing.batches import Row, chain, pack_rows, tree
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

LENGTH = 571  # beyond the 512 positions from which the passes are used, and no multiple of a page
PAGES = [range(20)]
CONFIG = toy_config(
    num_layers=2, hidden_size=40, intermediate_size=32, num_heads=6, num_kv_heads=2, head_dim=20, max_context=640
)
SOURCE = toy_source(CONFIG, seed=3, weights="q8")
TOKENS = np.random.default_rng(1).integers(64, size=LENGTH).tolist()


def hidden(model: LayerExecutor, batch: list[Row]) -> Ids:
    """Bits of the last layer's states, [rows, hidden]."""
    rows = pack_rows(batch, PAGES)
    return model.run_layers(model.embed(rows), rows, 0, CONFIG.num_layers).numpy().view(np.int32)


def native(kv: str, path: str, threads: int) -> LayerExecutor:
    return build_executor(SOURCE, kv=kv, num_pages=20, threads=threads, path=path)


@pytest.fixture(scope="module", params=["f16", pytest.param("f32", marks=pytest.mark.slow)])
def truth(request: pytest.FixtureRequest) -> tuple[Literal["f16", "f32"], Ids]:
    """K/V type and the twin's states of all rows, run as one chunk."""
    return request.param, hidden(TwinExecutor(SOURCE, kv=request.param, num_pages=20), chain(TOKENS))


@pytest.mark.parametrize("path", kernel_paths())
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_passes_equal_one_walk(truth: tuple[str, Ids], path: str, threads: int) -> None:
    kv, expected = truth
    model = native(kv, path, threads)
    begin = LENGTH - 23
    np.testing.assert_array_equal(hidden(model, chain(TOKENS[:begin])), expected[:begin])
    for size in (1, 2, 3, 8, 8, 1):
        rows = hidden(model, chain(TOKENS[begin : begin + size], start=begin))
        np.testing.assert_array_equal(rows, expected[begin : begin + size])
        begin += size
    assert begin == LENGTH


@pytest.mark.parametrize("path", kernel_paths())
def test_a_tree_over_a_long_context_equals_its_branches(truth: tuple[str, Ids], path: str) -> None:
    kv, expected = truth
    model = native(kv, path, threads=2)
    begin = LENGTH - 4
    hidden(model, chain(TOKENS[:begin]))
    right = TOKENS[begin:]
    tokens = [right[0], 9, right[1], right[2], 7, right[3]]
    parents = [-1, -1, 0, 2, 2, 3]
    rows = hidden(model, tree(tokens, parents, start=begin))
    np.testing.assert_array_equal(rows[[0, 2, 3, 5]], expected[begin:])


@pytest.mark.parametrize("path", kernel_paths())
def test_rows_of_short_and_long_sequences_together(truth: tuple[str, Ids], path: str) -> None:
    kv, expected = truth
    model = native(kv, path, threads=2)
    hidden(model, chain(TOKENS[: LENGTH - 1]))
    batch = [*chain(TOKENS[-1:], start=LENGTH - 1), *chain(TOKENS[:3], sequence=1)]
    rows = pack_rows(batch, [range(18), range(18, 20)])
    states = model.run_layers(model.embed(rows), rows, 0, CONFIG.num_layers).numpy().view(np.int32)
    np.testing.assert_array_equal(states, expected[[LENGTH - 1, 0, 1, 2]])
