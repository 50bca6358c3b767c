"""Copying from texts that come with the request.

What: finds the last few tokens of the sequence in the references and copies on from there. Of several such places
those count that agree with the sequence furthest; where they go on differently they become the branches of a small
tree, the more frequent ones and the place followed so far first.
When it helps: edits of a given text, answers from retrieved documents, an earlier version of the same answer.
Cost: two microseconds and some 500 bytes a reference token, once a request; ten to twenty microseconds a proposal;
without references nothing.
Exactness: proposes only; the verifier decides. Proposals are a function of the sequence's text and references; their
scores also of how earlier proposals fared.
Source: LLMA (arXiv 2304.04487); frequencies as in the Lookahead framework's trie (arXiv 2312.12728).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from heapq import heappop, heappush

from offramp.core import NO_DRAFT, DraftAsk, Ids, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.matching import MAX_MATCH, MIN_REACH, Evidence, Habit, agreement, evidence, prior
from offramp.draft.scores import ScoreTable
from offramp.params import MAX_DRAFT, check_int

MAX_PLACES = 16
"""Places looked at for one proposal: those nearest to where the sequence is expected to go on."""
BEHIND, AHEAD = 4, 32
"""How far from the expected place the sequence still counts as following the reference, in tokens."""
FOLLOWED_WEIGHT = 2.0
"""Occurrences that following a place counts as."""
BOUNDARY = -1
"""Between references; like any negative id it ends a copy."""

Key = tuple[Evidence, bool]  # and whether the sequence follows the place


@dataclass(frozen=True, slots=True)
class _Branches:
    """What may follow a proposed node: one test of one key."""

    key: Key
    nodes: dict[int, int] = field(default_factory=dict)  # token -> node, -1 when it did not make it into the tree


class ReferenceDrafter:
    """Indexes the references once a request. What it learns of its own reliability is shared by all."""

    def __init__(self, max_ngram: int = 4, max_nodes: int = 16) -> None:
        check_int("max_ngram", max_ngram, 1, 16)
        check_int("max_nodes", max_nodes, 1, MAX_DRAFT)
        self._max_ngram = max_ngram
        self._max_nodes = max_nodes
        self._scores: ScoreTable[Key] = ScoreTable(_prior)
        self._texts: dict[str, tuple[ReferenceText, set[int]]] = {}  # by request, and the choices that use it
        self._followed: dict[SequenceKey, int] = {}  # the place of the sequence's start, if it followed all along
        self._pending: dict[SequenceKey, dict[int, _Branches]] = {}  # of the last proposal, by node (-1: the root)

    @property
    def max_nodes(self) -> int:
        return self._max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        return [self._propose(ask) if ask.drafting.references else NO_DRAFT for ask in asks]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        branches = self._pending.pop(ask.key, {})
        node = -1
        for token in verdict.token_ids:
            tested = branches.get(node)
            if tested is None:
                break
            self._scores.learn(tested.key, token in tested.nodes)
            node = tested.nodes.get(token, -1)
            if node < 0:
                break

    def forget(self, sequence: Sequence) -> None:
        self._followed.pop(sequence.key, None)
        self._pending.pop(sequence.key, None)
        request_id, choice = sequence.key
        if request_id in self._texts:
            users = self._texts[request_id][1]
            users.discard(choice)
            if not users:
                del self._texts[request_id]

    def _propose(self, ask: DraftAsk) -> TokenTree:
        text = self._text_of(ask)
        tail: list[int] = ask.token_ids[-MAX_MATCH:].tolist()
        begin = self._followed.get(ask.key)
        expected = None if begin is None else begin + len(ask.token_ids)
        places, match_len = text.find(tail, expected)
        if not places:
            return NO_DRAFT
        follows = expected is not None and -BEHIND <= places[0] - expected <= AHEAD
        self._followed[ask.key] = places[0] - len(ask.token_ids)
        growth = _Growth(text, self._scores, match_len, follows)
        tree = growth.grow(places, min(self._max_nodes, ask.max_nodes), ask.max_depth)
        self._pending[ask.key] = growth.branches
        return tree

    def _text_of(self, ask: DraftAsk) -> ReferenceText:
        request_id, choice = ask.key
        if request_id not in self._texts:
            self._texts[request_id] = ReferenceText(ask.drafting.references, self._max_ngram), set()
        text, users = self._texts[request_id]
        users.add(choice)
        return text


class ReferenceText:
    """All references one after the other, with every place of every n-gram that something follows."""

    def __init__(self, references: Items[Ids], max_ngram: int) -> None:
        self.ids: list[int] = []
        for reference in references:
            self.ids += reference.tolist()
            self.ids.append(BOUNDARY)
        self._places: list[dict[tuple[int, ...], list[int]]] = []  # by size - 1: n-gram -> where it ended, ascending
        for size in range(1, max_ngram + 1):
            places: dict[tuple[int, ...], list[int]] = {}
            grams = zip(*(self.ids[offset:] for offset in range(size)), strict=False)
            for end, gram in enumerate(grams, start=size):
                if end < len(self.ids) and self.ids[end] >= 0:
                    places.setdefault(gram, []).append(end)
            self._places.append(places)

    def find(self, tail: list[int], expected: int | None) -> tuple[list[int], int]:
        """Places after the longest known n-gram at the tail's end that agree with it furthest, and how far.

        The place nearest to the expected one comes first, then the latest.
        """
        for size in range(min(len(self._places), len(tail)), 0, -1):
            places = self._places[size - 1].get(tuple(tail[-size:]))
            if places is not None:
                near = _nearest(places, expected)
                lengths = [agreement(tail, len(tail), self.ids, place, size) for place in near]
                longest = max(lengths)
                return [place for place, length in zip(near, lengths, strict=True) if length == longest], longest
        return [], 0


class _Growth:
    """One proposal in the making: the likeliest continuations of some places, best first."""

    def __init__(self, text: ReferenceText, scores: ScoreTable[Key], match_len: int, follows: bool) -> None:
        self._ids = text.ids
        self._scores = scores
        self._match_len = match_len
        self._follows = follows
        self._waiting: list[tuple[float, int, int, float, list[int]]] = []  # -worth, parent, token, score, then
        self.branches: dict[int, _Branches] = {}

    def grow(self, places: list[int], max_nodes: int, max_depth: int) -> TokenTree:
        tokens: list[int] = []
        parents: list[int] = []
        scores: list[float] = []
        depths: list[int] = []
        self._branch(places, -1, 1.0, 0)
        while self._waiting and len(tokens) < max_nodes:
            negative, parent, token, score, following = heappop(self._waiting)
            if tokens and -negative < MIN_REACH:
                break
            node = len(tokens)
            self.branches[parent].nodes[token] = node
            tokens.append(token)
            parents.append(parent)
            scores.append(score)
            depths.append(depths[parent] + 1 if parent >= 0 else 1)
            if depths[node] < max_depth:
                self._branch(following, node, -negative, depths[node])
        return TokenTree(tuple(tokens), tuple(parents), tuple(scores))

    def _branch(self, places: list[int], parent: int, worth: float, depth: int) -> None:
        """Queue what follows the places, by token; a path's worth is the chance that it stands, by the priors."""
        weights: dict[int, float] = {}
        following: dict[int, list[int]] = {}
        for place in places:
            token = self._ids[place]
            if token >= 0:  # else the reference ends here
                weights[token] = weights.get(token, 0.0) + 1.0
                following.setdefault(token, []).append(place + 1)
        if not weights:
            return
        if self._follows and self._ids[places[0]] >= 0:
            weights[self._ids[places[0]]] += FOLLOWED_WEIGHT
        key = evidence(self._match_len + depth, _habit(weights, places)), self._follows
        total = sum(weights.values())
        believed, learned = _prior(key) / total, self._scores.rate(key) / total
        self.branches[parent] = _Branches(key, dict.fromkeys(weights, -1))
        for token, weight in weights.items():
            path = worth * believed * weight
            heappush(self._waiting, (-path, parent, token, learned * weight, following[token]))


def _habit(weights: dict[int, float], places: list[int]) -> Habit:
    if len(weights) > 1:
        return Habit.MIXED
    return Habit.ONCE if len(places) == 1 else Habit.TWICE if len(places) == 2 else Habit.OFTEN


def _nearest(places: list[int], expected: int | None) -> list[int]:
    """At most `MAX_PLACES`, the nearest to the expected place first; the latest first where none is expected."""
    if expected is None:
        return places[: -MAX_PLACES - 1 : -1]
    middle = bisect_left(places, expected)
    around = places[max(0, middle - MAX_PLACES // 2) : middle + MAX_PLACES // 2]
    return sorted(around, key=lambda place: abs(place - expected))


def _prior(key: Key) -> float:
    """As for any copied text; of places that differ, that one of them is right."""
    (bucket, habit), _ = key
    return prior((bucket, Habit.ONCE if habit is Habit.MIXED else habit))
