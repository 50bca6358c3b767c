"""A row's result depends on that row only: not on batch, chunking, layer splits, row order or neighbours' NaNs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from offramp.core import Rows
from offramp.model.executor import LayerExecutor
from offramp.model.hidden import ArrayHidden
from offramp.testing.batches import chain, pack_rows, physical_slots, tree
from offramp.testing.program import same_bits
from offramp.testing.toy import ToyFormat, toy_config, toy_source

if TYPE_CHECKING:
    from .conftest import Build

CONFIG = toy_config(num_layers=3, hidden_size=40, intermediate_size=70, vocab_size=101, head_dim=12)
WEIGHTS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
PAGES = [[4, 0, 2], [1, 5, 3]]
TOKENS = np.random.default_rng(3).integers(101, size=(2, 70)).tolist()
L = CONFIG.num_layers


@pytest.fixture(params=WEIGHTS)
def executors(request: pytest.FixtureRequest, build: Build) -> tuple[LayerExecutor, LayerExecutor]:
    """Two fresh executors of the same weights."""
    source = toy_source(CONFIG, seed=2, weights=request.param)
    return build(source, "f16", 6), build(source, "f16", 6)


def run(executor: LayerExecutor, rows: Rows, start: int = 0, stop: int = L) -> np.ndarray:
    return executor.run_layers(executor.embed(rows), rows, start, stop).numpy()


def test_batched_and_shuffled_equals_alone_and_chunked(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    together, apart = executors
    rng = np.random.default_rng(1)
    batch = chain(TOKENS[0], sequence=0) + chain(TOKENS[1][:45], sequence=1)
    order = rng.permutation(len(batch))
    whole = run(together, pack_rows([batch[i] for i in order], PAGES))[np.argsort(order)]
    pieces = [
        run(apart, pack_rows(chain(TOKENS[s][start:stop], sequence=s, start=start), PAGES))
        for s, edges in ((0, [0, 1, 2, 31, 32, 33, 70]), (1, [0, 40, 45]))
        for start, stop in pairwise(edges)
    ]
    assert same_bits(whole, np.concatenate(pieces))


def test_layer_ranges_compose(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    straight, split = executors
    rows = pack_rows(chain(TOKENS[0][:40]), PAGES)
    whole = run(straight, rows)
    for cut in range(L + 1):
        middle = split.run_layers(split.embed(rows), rows, 0, cut)
        before = middle.numpy().copy()
        assert same_bits(split.run_layers(middle, rows, cut, L).numpy(), whole)
        assert same_bits(middle.numpy(), before), "run_layers changed its input"


def test_a_tree_branch_equals_the_sequence_it_spells(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    drafted, plain = executors
    start, parents = 30, [-1, 0, -1, 1, 2, 3, 3, 5, 7]
    tokens = TOKENS[1][: len(parents)]
    for executor in executors:
        run(executor, pack_rows(chain(TOKENS[0][:start]), PAGES))
    nodes = tree(tokens, parents, start=start)
    in_tree = run(drafted, pack_rows(nodes, PAGES))
    branch = [0, 1, 3, 5, 7, 8]
    alone = run(plain, pack_rows(chain([tokens[i] for i in branch], start=start), PAGES))
    assert same_bits(in_tree[branch], alone)

    slots = [nodes[i].slot for i in branch]
    landing = range(start, start + len(branch))
    drafted.copy_slots(physical_slots(PAGES[0], slots), physical_slots(PAGES[0], landing))
    following = pack_rows(chain([7], start=start + len(branch)), PAGES)
    assert same_bits(run(drafted, following), run(plain, following))


def test_copies_read_before_they_write(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    """Swapping two whole pages and the page table with them changes nothing."""
    swapped, plain = executors
    for executor in executors:
        run(executor, pack_rows(chain(TOKENS[0][:64]), PAGES))
    first, second = physical_slots([4], range(32)), physical_slots([0], range(32))
    swapped.copy_slots(np.concatenate([first, second]), np.concatenate([second, first]))
    following = chain([9], start=64)
    expected = run(plain, pack_rows(following, PAGES))
    assert same_bits(run(swapped, pack_rows(following, [[0, 4, 2]])), expected)


def test_a_nan_row_spoils_itself_only(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    poisoned, clean = executors
    rows = pack_rows(chain(TOKENS[0][:3], sequence=0) + chain(TOKENS[1][:3], sequence=1), PAGES)
    expected = run(clean, rows)
    h = poisoned.embed(rows)
    for bad in (np.nan, np.inf, -np.inf):
        values = h.numpy().copy()
        values[2, 5] = bad
        got_hidden = poisoned.run_layers(ArrayHidden(values), rows, 0, L)
        got, healthy = got_hidden.numpy(), [0, 1, 3, 4, 5]
        assert np.isnan(got[2]).all()
        assert same_bits(got[healthy], expected[healthy])
        logits = poisoned.logits(got_hidden)
        assert np.isnan(logits[2]).all()
        assert np.isfinite(logits[healthy]).all()


def test_fill_writes_what_a_run_from_the_same_state_writes(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    filled, run_through = executors
    rows = pack_rows(chain(TOKENS[0][:20]), PAGES)
    for executor in executors:
        executor.run_layers(executor.embed(rows), rows, 0, 1)
    h = filled.embed(rows)
    filled.fill(h, rows, 1, L)
    for layer in range(1, L):
        run_through.run_layers(h, rows, layer, layer + 1)
    following = pack_rows(chain([3], start=20), PAGES)
    assert same_bits(run(filled, following), run(run_through, following))


def test_logits_subset_and_top_agree_with_all_logits(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    executor, _ = executors
    rows = pack_rows(chain(TOKENS[0][:6]), PAGES)
    h = executor.run_layers(executor.embed(rows), rows, 0, L)
    logits = executor.logits(h)
    subset = np.array([100, 3, 3, 0, 57], np.int32)
    assert same_bits(executor.logits(h, vocab_ids=subset), np.ascontiguousarray(logits[:, subset]))
    top = executor.top(h, 10)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :10]
    assert (top.ids == order).all()
    assert same_bits(top.logits, np.take_along_axis(logits, order, axis=1))
    exact = logits.astype(np.float64)
    np.testing.assert_allclose(top.log_sum_exp, np.log(np.exp(exact).sum(axis=1)), rtol=1e-6)


def test_no_rows_is_a_batch_too(executors: tuple[LayerExecutor, LayerExecutor]) -> None:
    executor, _ = executors
    rows = pack_rows([], PAGES)
    h = executor.run_layers(executor.embed(rows), rows, 0, L)
    executor.fill(h, rows, 0, L)
    assert executor.logits(h).shape == (0, 101)
    assert executor.top(h, 3).ids.shape == (0, 3)
