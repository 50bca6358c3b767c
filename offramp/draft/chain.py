"""Several drafters at once.

What: every member is asked; the proposal with the most expected standing tokens wins, or all become one tree.
When it helps: members that know different things: the text so far, other requests' texts, given references.
Cost: that of all members, and some microseconds for the choice.
Exactness: proposes only; the verifier decides.
Source: our own; merging as in SpecInfer (arXiv 2305.09781).
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace

from offramp.core import NO_DRAFT, DraftAsk, Drafter, Sequence, SequenceKey, TokenTree, Verdict


class ChainDrafter:
    """Asks all members, which must score what they propose, and lets each learn from its own proposal."""

    def __init__(self, drafters: Items[Drafter], merge: bool = True) -> None:
        self._drafters = tuple(drafters)
        self._merge = merge
        self._proposed: dict[SequenceKey, list[TokenTree]] = {}  # by sequence, in the order of the members

    @property
    def max_nodes(self) -> int:
        return max((drafter.max_nodes for drafter in self._drafters), default=0)

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        by_member = [self._of_member(drafter, asks) for drafter in self._drafters]
        trees: list[TokenTree] = []
        for ask, *proposals in zip(asks, *by_member, strict=True):
            self._proposed[ask.key] = proposals
            max_nodes = min(ask.max_nodes, self.max_nodes)
            trees.append(self._together(proposals, max_nodes))
        return trees

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        for drafter, proposal in zip(self._drafters, self._proposed.pop(ask.key), strict=True):
            if drafter.max_nodes:
                drafter.observe(ask, proposal, verdict)

    def forget(self, sequence: Sequence) -> None:
        self._proposed.pop(sequence.key, None)
        for drafter in self._drafters:
            drafter.forget(sequence)

    def _together(self, proposals: list[TokenTree], max_nodes: int) -> TokenTree:
        if self._merge:
            return merged(proposals, max_nodes)
        best = max(proposals, key=expected, default=NO_DRAFT)
        return replace(best, laws=()) if best.laws else best  # scores of later tokens had a say

    def _of_member(self, drafter: Drafter, asks: Items[DraftAsk]) -> Items[TokenTree]:
        if not drafter.max_nodes:
            return [NO_DRAFT] * len(asks)
        trees = drafter.propose(asks)
        return [
            tree.clamp(max_nodes=ask.max_nodes, max_depth=ask.max_depth) for ask, tree in zip(asks, trees, strict=True)
        ]


def reaches(tree: TokenTree) -> list[float]:
    """For each node the chance that it stands: the product of the scores on its path."""
    assert len(tree.scores) == len(tree), "only scored proposals can be compared"
    reach: list[float] = []
    for score, parent in zip(tree.scores, tree.parents, strict=True):
        reach.append(score * reach[parent] if parent >= 0 else score)
    return reach


def expected(tree: TokenTree) -> float:
    """How many of its tokens are expected to stand."""
    return sum(reaches(tree))


def merged(trees: Items[TokenTree], max_nodes: int) -> TokenTree:
    """One tree with all their paths, equal ones once and with the higher score; of those the likeliest nodes.

    Where the scores of siblings sum to more than one, they are scaled down to one: only one of them can stand. Laws are
    lost where there are several: which nodes stay is not for the laws alone to say.
    """
    drafted = [tree for tree in trees if len(tree)]
    if len(drafted) <= 1:
        return drafted[0].clamp(max_nodes=max_nodes, max_depth=len(drafted[0])) if drafted else NO_DRAFT
    union = _union(drafted)
    if len(union) <= max_nodes:
        return union
    reach = reaches(union)
    likeliest = sorted(range(len(union)), key=lambda node: (-reach[node], node))  # parents before their children
    return union.keep(sorted(likeliest[:max_nodes]))


def _union(trees: Items[TokenTree]) -> TokenTree:
    tokens: list[int] = []
    parents: list[int] = []
    scores: list[float] = []
    known: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for tree in trees:
        named = {-1: -1}
        for node, (token, score) in enumerate(zip(tree.token_ids, tree.scores, strict=True)):
            parent = named[tree.parents[node]]
            here = known.setdefault((parent, token), len(tokens))
            if here == len(tokens):
                tokens.append(token)
                parents.append(parent)
                scores.append(score)
            named[node] = here
            scores[here] = max(scores[here], score)
    totals: dict[int, float] = {}
    for parent, score in zip(parents, scores, strict=True):
        totals[parent] = totals.get(parent, 0.0) + score
    scaled = [score / max(1.0, totals[parent]) for parent, score in zip(parents, scores, strict=True)]
    return TokenTree(tuple(tokens), tuple(parents), tuple(scaled))
