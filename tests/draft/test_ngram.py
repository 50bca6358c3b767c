"""Prompt lookup: what it finds, against a search of the whole text, and what it learns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.core import DraftAsk, Request, SamplingParams, TokenTree, Verdict
from offramp.core import Sequence as Choice
from offramp.draft.matching import MIN_REACH
from offramp.draft.ngram import NgramDrafter
from offramp.errors import InvalidRequestError


def ask(ids: Sequence[int], *, name: str = "r", max_nodes: int = 8, max_depth: int = 100) -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array(ids, np.int32), max_nodes, max_depth)


def propose(drafter: NgramDrafter, ids: Sequence[int], **bounds: int) -> TokenTree:
    [tree] = drafter.propose([ask(ids, **bounds)])  # type: ignore[arg-type]
    return tree


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


def sequence(name: str = "r") -> Choice:
    request = Request(request_id=name, prompt_token_ids=[1], params=SamplingParams(), seed=0)
    return Choice(request, 0, arrival=0, max_context=64)


def searched(ids: Sequence[int], low: int, high: int, length: int) -> list[int]:
    """The slow truth: longest n-gram first, latest place first, copied on through what is being copied."""
    for size in range(high, low - 1, -1):
        for place in range(len(ids) - 1, size - 1, -1):
            if list(ids[place - size : place]) == list(ids[len(ids) - size :]):
                text = list(ids)
                for _ in range(length):
                    text.append(text[place + len(text) - len(ids)])
                return text[len(ids) :]
    return []


@settings(max_examples=150, deadline=None)
@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    low=st.integers(1, 3),
    more=st.integers(0, 3),
    cuts=st.sets(st.integers(1, 40)),
)
def test_finds_what_a_search_of_the_whole_text_finds(ids: list[int], low: int, more: int, cuts: set[int]) -> None:
    drafter = NgramDrafter(low, low + more)
    for length in sorted({*(cut for cut in cuts if cut < len(ids)), len(ids)}):  # asks may be skipped
        tree = propose(drafter, ids[:length])
        wanted = searched(ids[:length], low, low + more, 8)
        assert tree.is_chain
        assert list(tree.token_ids) == wanted[: len(tree)]
        assert bool(len(tree)) == bool(wanted)
        assert len(tree) in (0, 1, 8) or np.prod(tree.scores) >= MIN_REACH


def test_the_longest_ngram_comes_first_and_of_equals_the_latest_b123() -> None:
    longest = [1, 2, 3, 4, 50, 9, 3, 4, 60, 9, 1, 2, 3, 4]  # four tokens led to 50, the later two to 60
    assert propose(NgramDrafter(2, 4), longest).token_ids[0] == 50
    assert propose(NgramDrafter(2, 2), longest).token_ids[0] == 60
    assert propose(NgramDrafter(2, 4), [3, 4, 50, 9, 3, 4, 60, 8, 3, 4]).token_ids[0] == 60
    assert propose(NgramDrafter(3, 4), [3, 4, 50, 9, 3, 4]) == TokenTree()


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_copy_that_reaches_the_present_goes_round(period: int) -> None:
    cycle = list(range(period))
    tree = propose(NgramDrafter(), cycle * 4, max_nodes=12)
    assert list(tree.token_ids) == (cycle * 12)[:12]


def test_bounds_are_kept() -> None:
    ids = [1, 2] * 9
    assert len(propose(NgramDrafter(max_nodes=6), ids)) == 6
    assert len(propose(NgramDrafter(), ids, max_nodes=3)) == 3
    assert len(propose(NgramDrafter(), ids, max_depth=2)) == 2
    assert NgramDrafter(max_nodes=6).max_nodes == 6


@pytest.mark.parametrize("ids", [[7], [7, 8], [1, 2, 3, 4]])
def test_nothing_is_proposed_where_nothing_repeats_b125(ids: list[int]) -> None:
    drafter = NgramDrafter()
    assert propose(drafter, ids) == TokenTree()
    drafter.observe(ask(ids), TokenTree(), told(5))


def test_scores_rise_with_agreement_and_habit_and_fall_where_habits_differ() -> None:
    drafter = NgramDrafter()
    short = propose(drafter, [1, 2, 9, 5, 2], name="a").scores[0]  # type: ignore[arg-type]
    long = propose(drafter, [1, 2, 3, 4, 9, 5, 1, 2, 3, 4], name="b").scores[0]  # type: ignore[arg-type]
    often = propose(drafter, [2, 9, 6, 2, 9, 5, 2, 9, 7, 2], name="c").scores[0]  # type: ignore[arg-type]
    mixed = propose(drafter, [2, 8, 6, 2, 9, 5, 2], name="d").scores[0]  # type: ignore[arg-type]
    assert mixed < short < long
    assert short < often


def test_learns_from_what_followed_whether_or_not_it_ran() -> None:
    drafter = NgramDrafter()
    ids = [1, 2, 3, 9, 1, 2]
    before = propose(drafter, ids)
    for _ in range(50):
        drafter.observe(ask(ids), propose(drafter, ids), told(8))  # nothing was accepted
    after = propose(drafter, ids)
    assert after.token_ids[0] == before.token_ids[0] == 3
    assert after.scores[0] < 0.2 < before.scores[0]
    assert propose(NgramDrafter(), ids).scores == before.scores
    other = propose(drafter, ids, name="other")  # type: ignore[arg-type]
    assert other.scores[0] == after.scores[0], "reliability is shared, texts are not"
    for _ in range(100):
        drafter.observe(ask(ids), propose(drafter, ids), told(3))
    assert propose(drafter, ids).scores[0] > before.scores[0]


def test_a_cut_proposal_teaches_only_what_was_tested() -> None:
    drafter = NgramDrafter()
    ids = [1, 2, 3, 4, 9, 1]
    before = propose(drafter, ids)
    drafter.observe(ask(ids), before.clamp(max_nodes=1, max_depth=1), told(2, 7))
    after = propose(drafter, ids)
    assert after.scores[0] > before.scores[0]
    assert after.scores[1:4] == before.scores[1:4]


def test_a_sequence_that_ended_leaves_its_text_behind() -> None:
    drafter = NgramDrafter()
    propose(drafter, [1, 2, 3, 1, 2])
    drafter.forget(sequence())
    drafter.forget(sequence("never asked about"))
    assert propose(drafter, [4, 1, 2]) == TokenTree()


@pytest.mark.parametrize(("low", "high", "nodes"), [(0, 4, 8), (3, 2, 8), (1, 4, 0), (1, 99, 8)])
def test_impossible_sizes_are_refused(low: int, high: int, nodes: int) -> None:
    with pytest.raises(InvalidRequestError):
        NgramDrafter(low, high, nodes)
