"""Several drafters at once: whose proposal wins, what a merged tree holds, who learns what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.core import DraftAsk, Request, SamplingParams, TokenTree, Verdict
from offramp.core import Sequence as Choice
from offramp.draft.chain import ChainDrafter, expected, merged, reaches
from offramp.draft.ngram import NgramDrafter
from offramp.draft.none import NoDrafter
from offramp.testing.drafters import ScriptedDrafter


def ask(ids: Sequence[int] = (1, 2), max_nodes: int = 8, max_depth: int = 8, name: str = "r") -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array(ids, np.int32), max_nodes, max_depth)


def member(*trees: TokenTree, max_nodes: int = 8) -> ScriptedDrafter:
    waiting = list(trees)
    return ScriptedDrafter(lambda _: waiting.pop(0), max_nodes=max_nodes)


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


SURE = TokenTree.chain([5, 6], [0.9, 0.6])
LONG = TokenTree.chain([7, 8, 9], [0.5, 0.9, 0.9])


def test_expected_is_the_sum_of_the_products() -> None:
    assert expected(SURE) == pytest.approx(0.9 + 0.54)
    assert expected(TokenTree((1, 2, 3), (-1, -1, 0), (0.5, 0.25, 0.5))) == pytest.approx(1.0)
    assert expected(TokenTree()) == 0.0
    with pytest.raises(AssertionError, match="scored"):
        expected(TokenTree.chain([1, 2]))


def test_the_most_expected_tokens_win() -> None:
    drafter = ChainDrafter([member(LONG, TokenTree()), member(SURE, LONG)], merge=False)
    assert drafter.propose([ask(name="a"), ask(name="b")]) == [SURE, LONG]


def test_the_winner_is_judged_within_bounds() -> None:
    longest = TokenTree.chain([1, 2, 3, 4], [0.7] * 4)
    drafter = ChainDrafter([member(longest), member(TokenTree.chain([9], [0.8]))], merge=False)
    assert drafter.propose([ask(max_depth=1)])[0].token_ids == (9,)


def test_equal_paths_are_shared_and_the_higher_score_kept() -> None:
    one = TokenTree((5, 6, 7), (-1, 0, 0), (0.5, 0.4, 0.3))
    two = TokenTree((5, 7, 8), (-1, 0, 1), (0.6, 0.2, 0.9))
    assert merged([one, two], 9) == TokenTree((5, 6, 7, 8), (-1, 0, 0, 2), (0.6, 0.4, 0.3, 0.9))


def test_siblings_never_promise_more_than_one_token() -> None:
    tree = merged([SURE, TokenTree.chain([7], [0.9])], 9)
    assert tree.token_ids == (5, 6, 7)
    assert tree.scores == pytest.approx((0.5, 0.6, 0.5))


def test_the_likeliest_nodes_stay() -> None:
    tree = merged([TokenTree.chain([1, 2, 3], [0.4, 0.5, 0.9]), TokenTree.chain([4, 5], [0.3, 0.9])], 3)
    assert tree.token_ids == (1, 4, 5)
    assert tree.parents == (-1, -1, 1)


scored = st.integers(0, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(0, 2), min_size=size, max_size=size),
        st.tuples(*(st.integers(-1, node - 1) for node in range(size))),
        st.lists(st.floats(0, 1), min_size=size, max_size=size),
    )
)


@settings(max_examples=200, deadline=None)
@given(drafts=st.lists(scored, max_size=4), max_nodes=st.integers(1, 12))
def test_a_merged_tree_holds_the_likeliest_of_all_paths(
    drafts: list[tuple[list[int], tuple[int, ...], list[float]]], max_nodes: int
) -> None:
    trees = [without_twins(TokenTree(tuple(t), p, tuple(s))) for t, p, s in drafts]
    everything = merged(trees, 99)
    paths = [token_paths(tree) for tree in trees]
    assert sorted(token_paths(everything)) == sorted(set().union(*paths))
    part = merged(trees, max_nodes)
    assert len(part) <= max_nodes
    assert set(token_paths(part)) <= set(token_paths(everything))
    if sum(map(bool, trees)) > 1:
        best = sorted(reaches(everything), reverse=True)[:max_nodes]
        assert sorted(reaches(part), reverse=True) == pytest.approx(best)


def token_paths(tree: TokenTree) -> list[tuple[int, ...]]:
    return [tuple(tree.token_ids[node] for node in path) for path in tree.paths()]


def without_twins(tree: TokenTree) -> TokenTree:
    """Drafters never propose the same token twice behind the same node."""
    seen: set[tuple[int, ...]] = set()
    firsts: list[int] = []
    for node, (parent, path) in enumerate(zip(tree.parents, token_paths(tree), strict=True)):
        if path not in seen and (parent < 0 or parent in firsts):
            firsts.append(node)
        seen.add(path)
    return tree.keep(firsts)


@pytest.mark.parametrize("merge", [False, True])
def test_every_member_learns_from_its_own_proposal(merge: bool) -> None:
    members = [member(SURE), member(LONG), member(TokenTree())]
    drafter = ChainDrafter([*members, NoDrafter()], merge)
    [tree] = drafter.propose([ask()])
    verdict = told(5, 1)
    drafter.observe(ask(), tree, verdict)
    assert [one.verdicts for one in members] == [[(SURE, verdict)], [(LONG, verdict)], [(TokenTree(), verdict)]]


def test_members_without_nodes_are_never_asked() -> None:
    idle = member(max_nodes=0)
    drafter = ChainDrafter([idle, member(SURE, max_nodes=5)])
    assert drafter.max_nodes == 5
    assert drafter.propose([ask()]) == [SURE]
    assert idle.asks == []
    assert ChainDrafter([]).max_nodes == 0


def test_forgetting_reaches_all_members() -> None:
    scripted = member(SURE, SURE)
    drafter = ChainDrafter([scripted, NgramDrafter()])
    repeating = ask([1, 2, 1, 2], name="s")
    assert 1 in drafter.propose([repeating])[0].token_ids
    request = Request(request_id="s", prompt_token_ids=[1], params=SamplingParams(), seed=0)
    drafter.forget(Choice(request, 0, arrival=0, max_context=64))
    assert drafter.propose([ask([1, 3], name="s")]) == [SURE], "the text is gone"
    assert scripted.forgotten == [("s", 0)]
