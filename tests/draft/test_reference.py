"""Copying from references: where it goes on, how several of them branch, what it keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.core import DraftAsk, DraftParams, Request, SamplingParams, TokenTree, Verdict
from offramp.core import Sequence as Choice
from offramp.draft import reference
from offramp.draft.chain import reaches
from offramp.draft.matching import MIN_REACH
from offramp.draft.reference import ReferenceDrafter, ReferenceText
from offramp.errors import InvalidRequestError

Texts = Sequence[Sequence[int]]


def ask(ids: Sequence[int], texts: Texts, *, choice: int = 0, max_nodes: int = 8, max_depth: int = 100) -> DraftAsk:
    drafting = DraftParams(references=tuple(np.array(text, np.int32) for text in texts))
    return DraftAsk(("r", choice), 1, np.array(ids, np.int32), max_nodes, max_depth, drafting)


def propose(ids: Sequence[int], texts: Texts, drafter: ReferenceDrafter | None = None, **bounds: int) -> TokenTree:
    [tree] = (drafter or ReferenceDrafter()).propose([ask(ids, texts, **bounds)])
    return tree


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


def sequence(choice: int) -> Choice:
    request = Request(request_id="r", prompt_token_ids=[1], params=SamplingParams(), seed=0)
    return Choice(request, choice, arrival=0, max_context=64)


def test_without_references_nothing_is_proposed_and_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "ReferenceText", None)  # making one would raise
    drafter = ReferenceDrafter()
    assert propose([1, 2, 1, 2], [], drafter) == TokenTree()
    drafter.observe(ask([1, 2, 1, 2], []), TokenTree(), told(1))
    drafter.forget(sequence(0))


@pytest.mark.parametrize("texts", [[[]], [[], []], [[5]], [[1, 2]], [[-3, -4], [-1]]])
def test_empty_and_short_references_propose_nothing(texts: Texts) -> None:
    assert propose([7, 1, 2], texts) == TokenTree()


def test_copies_on_from_the_place_that_agrees_furthest() -> None:
    text = [1, 2, 3, 50, 51, 9, 8, 2, 3, 60, 61]
    assert propose([7, 1, 2, 3], [text]).token_ids[:2] == (50, 51)
    assert propose([7, 8, 2, 3], [text]).token_ids[:2] == (60, 61)
    beyond = [5, *range(10, 20), 50, 6, *range(10, 20), 60]  # equal for longer than any n-gram
    assert propose([6, *range(10, 20)], [beyond]).token_ids == (60,)


def test_a_copy_ends_with_its_reference() -> None:
    assert propose([1, 2], [[1, 2, 3, 4], [5, 6, 7]]).token_ids == (3, 4)
    assert propose([4, 5], [[1, 2, 3, 4], [5, 6, 7]]).token_ids == (6, 7), "5 is found, 4 before it is not its context"
    assert propose([1, 2], [[1, 2, 3, -1, 4]]).token_ids == (3,)
    assert propose([8, 1, 2], [[8, 1, 2], [2, 3]]).token_ids == (3,), "behind the furthest agreement is nothing to copy"


def test_references_that_differ_make_a_tree_with_the_frequent_first() -> None:
    tree = propose([1, 2], [[1, 2, 30, 31], [1, 2, 40, 41], [1, 2, 40, 42]])
    paths = {tuple(tree.token_ids[node] for node in path) for path in tree.paths()}
    assert {(40,), (30,), (40, 41), (40, 42), (30, 31)} == paths
    score = dict(zip(tree.token_ids, tree.scores, strict=True))
    assert tree.token_ids[0] == 40
    assert score[40] == pytest.approx(2 * score[30])
    assert score[41] == score[42]


def test_the_place_followed_so_far_is_preferred() -> None:
    drafter = ReferenceDrafter()
    text = [9, 1, 2, 30, 7, 7, 5, 1, 2, 40, 8, 8, 8, 1, 2, 50]
    assert propose([0, 9], [text], drafter).token_ids[:2] == (1, 2)
    assert propose([0, 9, 3, 1, 2], [text], drafter).token_ids[0] == 30, "an inserted token does not lose the place"
    assert propose([0, 3, 3, 1, 2], [text]).token_ids[0] in (30, 40, 50)
    late = ReferenceDrafter()
    assert propose([0, 8, 8, 8], [text], late).token_ids[:2] == (1, 2)
    assert propose([0, 8, 8, 8, 3, 1, 2], [text], late).token_ids[0] == 50


def test_learns_reliability_from_its_own_proposal() -> None:
    drafter = ReferenceDrafter()
    ids, texts = [1, 2], [[1, 2, 3, 4]]
    before = propose(ids, texts, drafter)
    for _ in range(8):
        tree = propose(ids, texts, drafter)
        drafter.observe(ask(ids, texts), tree, told(9))
        drafter.forget(sequence(0))
    after = propose(ids, texts, drafter)
    assert after.scores[0] < before.scores[0] * 0.6
    assert after.scores[1:] == before.scores[1:], "the second node was never tested"


def test_one_index_serves_all_choices_of_a_request_until_the_last_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(ReferenceText):
        def __init__(self, *given: object) -> None:
            made.append(given)
            super().__init__(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(reference, "ReferenceText", Counted)
    drafter = ReferenceDrafter()
    texts = [[1, 2, 3]]
    for length in (2, 3, 4):
        for choice in (0, 1):
            propose([7, 1, 2, 1][:length], texts, drafter, choice=choice)
    drafter.forget(sequence(0))
    drafter.forget(sequence(5))
    propose([7, 1], texts, drafter, choice=1)
    assert len(made) == 1
    drafter.forget(sequence(1))
    propose([7, 1], texts, drafter, choice=2)
    assert len(made) == 2, "the index went with its last user"


@settings(max_examples=100, deadline=None)
@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    texts=st.lists(st.lists(st.integers(-1, 3), max_size=30), min_size=1, max_size=4),
    max_nodes=st.integers(1, 9),
    max_depth=st.integers(1, 6),
)
def test_every_path_stands_somewhere_behind_the_longest_match(
    ids: list[int], texts: list[list[int]], max_nodes: int, max_depth: int
) -> None:
    tree = propose(ids, texts, max_nodes=max_nodes, max_depth=max_depth)
    places = longest_matches(ids, texts)
    continued = [text[place:] for text, place in places]
    assert bool(len(tree)) == bool(places)
    assert len(tree) <= max_nodes
    for path in tree.paths():
        tokens = [tree.token_ids[node] for node in path]
        assert len(path) <= max_depth
        assert any(rest[: len(tokens)] == tokens for rest in continued)
    siblings = list(zip(tree.parents, tree.token_ids, strict=True))
    assert len(siblings) == len(set(siblings))
    for parent in set(tree.parents):
        assert sum(s for s, p in zip(tree.scores, tree.parents, strict=True) if p == parent) <= 1.0
    assert all(reach >= MIN_REACH for reach in reaches(tree)[1:])


def longest_matches(ids: list[int], texts: list[list[int]]) -> list[tuple[list[int], int]]:
    """The slow truth: of all places that something follows, those agreeing furthest with the end, up to 32 tokens."""
    found: dict[int, list[tuple[list[int], int]]] = {}
    for text in texts:
        for place in range(1, len(text)):
            length = 0
            while length < min(32, place, len(ids)) and text[place - length - 1] == ids[len(ids) - length - 1]:
                length += 1
            if text[place] >= 0:
                found.setdefault(length, []).append((text, place))
    found.pop(0, None)
    return found[max(found)] if found else []


@pytest.mark.parametrize(("max_ngram", "max_nodes"), [(0, 8), (4, 0), (4, 65)])
def test_impossible_sizes_are_refused(max_ngram: int, max_nodes: int) -> None:
    with pytest.raises(InvalidRequestError):
        ReferenceDrafter(max_ngram, max_nodes)
