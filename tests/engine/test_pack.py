"""Packed rows, field by field, on small plans."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.cache.pages import PagePool
from offramp.cache.prefix import PrefixCache
from offramp.cache.sequence import SequenceCache
from offramp.core import FULL_DEPTH, NO_DRAFT, ExitParams, Request, SamplingParams, Sequence, TokenTree
from offramp.engine.pack import append_chain_rows, pack
from offramp.engine.planner import PlanItem
from offramp.engine.task import Task

POOL = PagePool(32)
PREFIX = PrefixCache(POOL)


EXITING = ExitParams(policy="early")


def item(
    prompt: list[int],
    output: list[int],
    start: int,
    stop: int,
    slots: int,
    exits: ExitParams = FULL_DEPTH,
    **params: int,
) -> PlanItem:
    request = Request(request_id="r", prompt_token_ids=prompt, params=SamplingParams(**params), seed=0, exits=exits)
    sequence = Sequence(request, 0, arrival=0, max_context=512)
    sequence.tokens.extend(output)
    cache = SequenceCache(POOL, PREFIX, 2, "")
    cache.grow(slots)
    return PlanItem(Task(sequence, cache), start, stop)


def test_a_chunk_a_decoding_row_and_a_chain() -> None:
    chunk = item(list(range(50)), [], 4, 9, 50, EXITING)
    decoding = item([7, 8], [9], 2, 3, 3, EXITING)
    drafting = item([5], [6], 1, 2, 10)
    batch = pack([chunk, decoding, drafting], [NO_DRAFT, NO_DRAFT, TokenTree.chain([70, 71])])
    rows = batch.rows
    assert rows.tokens.tolist() == [4, 5, 6, 7, 8, 9, 6, 70, 71]
    assert rows.sequence.tolist() == [0] * 5 + [1] + [2] * 3
    assert rows.positions.tolist() == [4, 5, 6, 7, 8, 2, 1, 2, 3]
    assert rows.slots.tolist() == rows.positions.tolist() == rows.prefix_lens.tolist()
    assert rows.ancestor_starts.tolist() == [0] * 10
    assert rows.page_starts.tolist() == [0, 2, 3, 4]
    assert batch.committed.tolist() == [9, 3, 2]
    assert batch.logit_rows.tolist() == [5, 6, 7, 8]
    assert [place.row for place in batch.places] == [0, 1]
    assert batch.candidates.keys() == {"early"}, "a request without a policy has no candidates"
    early = batch.candidates["early"]
    assert (early.rows.tolist(), early.places.tolist(), early.outputs.tolist()) == ([5], [0], [1])
    assert early.keys == [("r", 0)]
    for name in ("tokens", "sequence", "positions", "slots", "prefix_lens", "ancestor_starts", "page_ids"):
        assert getattr(rows, name).dtype == np.int32, name


def test_a_tree_lives_in_scratch_slots_with_its_path_as_ancestors() -> None:
    tree = TokenTree((10, 11, 12, 13), (-1, -1, 1, 0))
    rows = pack([item([1, 2, 3], [], 0, 3, 8)], [tree]).rows
    assert rows.slots.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert rows.positions.tolist() == [0, 1, 2, 3, 3, 4, 4]
    assert rows.prefix_lens.tolist() == [0, 1, 2, 3, 3, 3, 3]
    counts = np.diff(rows.ancestor_starts).tolist()
    assert counts == [0, 0, 0, 0, 0, 1, 1]
    assert rows.ancestor_slots.tolist() == [4, 3]


def test_the_last_prompt_row_runs_all_layers_but_a_recomputed_row_may_leave() -> None:
    assert pack([item([1, 2, 3], [], 0, 3, 3, EXITING)], [NO_DRAFT]).candidates == {}
    recomputed = pack([item([1, 2, 3], [4, 5], 0, 5, 5, EXITING)], [NO_DRAFT]).candidates["early"]
    assert (recomputed.rows.tolist(), recomputed.outputs.tolist()) == ([4], [2])


def test_candidates_are_grouped_by_policy() -> None:
    late = ExitParams(policy="late")
    items = [item([1], [2] * (i + 1), i + 1, i + 2, 9, (EXITING, late, FULL_DEPTH)[i % 3]) for i in range(5)]
    candidates = pack(items, [NO_DRAFT] * 5).candidates
    assert {name: some.rows.tolist() for name, some in candidates.items()} == {"early": [0, 3], "late": [1, 4]}
    assert {name: some.outputs.tolist() for name, some in candidates.items()} == {"early": [1, 4], "late": [2, 5]}


def test_drafts_before_a_row_that_may_leave_are_our_mistake() -> None:
    with pytest.raises(AssertionError, match="drafts or exits"):
        pack([item([1, 2, 3], [4], 3, 4, 9, EXITING)], [TokenTree.chain([5])])


def test_prompt_rows_are_those_whose_next_token_is_a_prompt_token() -> None:
    entry = item([1, 2, 3, 4], [], 0, 4, 4, prompt_logprobs=0)
    assert [rows.tolist() for rows in pack([entry], [NO_DRAFT]).prompt_rows] == [[0, 1, 2]]


def test_writes_into_shared_pages_are_caught() -> None:
    entry = item([1] * 40, [], 0, 40, 40)
    page = int(entry.task.cache.pages.view[1])
    POOL.retain(page)
    with pytest.raises(AssertionError, match="shared"):
        pack([entry], [NO_DRAFT])
    POOL.release(page)


def test_chain_rows_can_be_appended() -> None:
    rows = pack([item([1, 2, 3], [], 0, 3, 8)], [TokenTree((10, 11, 12), (-1, -1, 1))]).rows
    more = append_chain_rows(rows, *(np.array([value], dtype=np.int32) for value in (9, 0, 1)))
    assert more.tokens.tolist()[-1] == 9
    assert (more.positions[-1], more.slots[-1], more.prefix_lens[-1]) == (1, 1, 1)
    assert more.ancestor_starts.tolist() == [*rows.ancestor_starts.tolist(), rows.ancestor_starts[-1]]
