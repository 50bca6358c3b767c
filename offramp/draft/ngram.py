"""Prompt lookup: an n-gram drafter.

What: finds the last few tokens earlier in prompt and output, longest match and latest place first, and copies what
followed there; a copy that reaches the present goes round, so periods continue.
When it helps: summaries, retrieval, edits, code, lists: whatever repeats itself or its prompt.
Cost: two microseconds and some 300 bytes a token of text; ten to twenty microseconds a proposal; no model.
Exactness: proposes only; the verifier decides. Proposals are a function of the sequence's own text; their scores also
of how earlier proposals fared.
Source: prompt lookup decoding (Saxena, 2023).
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from offramp.core import NO_DRAFT, DraftAsk, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.matching import MIN_REACH, Evidence, Habit, agreement, evidence, prior
from offramp.draft.scores import ScoreTable
from offramp.errors import InvalidRequestError
from offramp.params import MAX_DRAFT, check_int


class NgramDrafter:
    """Keeps an index of each sequence; what it learns of its own reliability is shared by all."""

    def __init__(self, min_ngram: int = 1, max_ngram: int = 4, max_nodes: int = 16) -> None:
        check_int("min_ngram", min_ngram, 1)
        check_int("max_ngram", max_ngram, 1, 16)
        check_int("max_nodes", max_nodes, 1, MAX_DRAFT)
        if min_ngram > max_ngram:
            raise InvalidRequestError(
                f"min_ngram={min_ngram} is above max_ngram={max_ngram}", hint="lower min_ngram", param="min_ngram"
            )
        self._sizes = range(min_ngram, max_ngram + 1)
        self._max_nodes = max_nodes
        self._scores: ScoreTable[Evidence] = ScoreTable(prior)
        self._texts: dict[SequenceKey, IndexedText] = {}
        self._pending: dict[SequenceKey, list[Evidence]] = {}  # of the last proposal, by node

    @property
    def max_nodes(self) -> int:
        return self._max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        return [self._propose(ask) for ask in asks]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        keys = self._pending.pop(ask.key, [])
        stood, tested = tree.trace(verdict.token_ids)
        for node in tested:
            self._scores.learn(keys[node], node in stood)

    def forget(self, sequence: Sequence) -> None:
        self._texts.pop(sequence.key, None)
        self._pending.pop(sequence.key, None)

    def _propose(self, ask: DraftAsk) -> TokenTree:
        text = self._texts.get(ask.key)
        if text is None:
            text = self._texts[ask.key] = IndexedText(self._sizes)
        text.extend(ask.token_ids[len(text) :].tolist())
        place, match_len = text.find()
        if not match_len:
            return NO_DRAFT
        tokens: list[int] = []
        scores: list[float] = []
        keys: list[Evidence] = []
        reach = 1.0
        for depth in range(min(self._max_nodes, ask.max_nodes, ask.max_depth)):
            token, habit = text.following(place, match_len, depth)
            key = evidence(match_len + depth, habit)
            reach *= prior(key)
            if tokens and reach < MIN_REACH:
                break
            tokens.append(token)
            scores.append(self._scores.rate(key))
            keys.append(key)
        self._pending[ask.key] = keys
        return TokenTree.chain(tokens, scores)


class IndexedText:
    """A growing text that knows the latest earlier place of its last tokens, and what used to follow them."""

    def __init__(self, sizes: range) -> None:
        self._sizes = sizes
        self._ids: list[int] = []
        self._latest: list[dict[tuple[int, ...], int]] = [{} for _ in sizes]  # n-gram -> where it last ended
        self._habits = [bytearray() for _ in sizes]  # by end: what followed the n-gram there and before
        self._num_indexed = 0  # ends before this one are indexed; the present end never is

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, token_ids: Items[int]) -> None:
        self._ids += token_ids
        end = len(self._ids)
        for size, latest, habits in zip(self._sizes, self._latest, self._habits, strict=True):
            self._index(size, latest, habits, end)
        self._num_indexed = end

    def find(self) -> tuple[int, int]:
        """The latest place where the longest known n-gram at the end ended before, and how far the texts agree."""
        ids, end = self._ids, len(self._ids)
        for size, latest in zip(reversed(self._sizes), reversed(self._latest), strict=True):
            place = latest.get(tuple(ids[end - size :])) if size < end else None
            if place is not None:
                return place, agreement(ids, end, ids, place, size)
        return 0, 0

    def following(self, place: int, match_len: int, depth: int) -> tuple[int, Habit]:
        """The token `depth` behind the place, going round at the end, and the habit of its context."""
        at = place + depth % (len(self._ids) - place)
        size = min(max(match_len + depth, self._sizes.start), self._sizes.stop - 1)
        return self._ids[at], Habit(self._habits[size - self._sizes.start][at])

    def _index(self, size: int, latest: dict[tuple[int, ...], int], habits: bytearray, stop: int) -> None:
        """Note the n-grams of one size that ended before `stop`, and what followed each."""
        ids = self._ids
        for end in range(self._num_indexed, stop):
            if end < size:
                habits.append(Habit.ONCE)
                continue
            gram = tuple(ids[end - size : end])
            before = latest.get(gram)
            latest[gram] = end
            if before is None:
                habits.append(Habit.ONCE)
            elif ids[before] != ids[end]:
                habits.append(Habit.MIXED)
            else:
                habits.append(Habit.OFTEN if habits[before] in (Habit.TWICE, Habit.OFTEN) else Habit.TWICE)
