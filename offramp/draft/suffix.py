"""Suffix automata: what followed the longest context seen before.

What: looks up the longest suffix of the text in everything this sequence has said and been told, and in what earlier
sequences said, and grows a tree of what followed there, best first.
When it helps: answers that copy from their prompt, repeat themselves, or resemble earlier answers: summaries,
retrieval, code and its edits, structured text, agents.
Cost: about 0.2 microseconds a token to index, 20 to 40 to propose and to learn what became of it; some 80 bytes a token
of each sequence, and `store_bytes` for the shared store. No call of the model.
Exactness: drafts are verified, so none of it changes a token. Proposals are a function of the texts seen; their scores
also of how earlier proposals fared.
Source: SuffixDecoding (arXiv 2411.04975), with suffix automata in place of trees and rates learned in use in place of
raw frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np

from offramp.core import NO_DRAFT, DraftAsk, Ids, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.scores import ScoreTable
from offramp.draft.store import LEAST_BYTES, TextStore
from offramp.native.suffix import GRADES, Grade, SuffixAutomaton, SuffixReader, Worth, grow
from offramp.params import MAX_DRAFT, check_int

OWN, STORE = 0, 1  # where an offered token comes from

MIN_WORTH = 0.02
"""Of a path, by the priors, to be proposed: little, for what was learned may think more of it."""

MAX_CONTEXT = 32
"""Tokens of context looked up in the store; longer matches are graded alike."""

PROMPT_TAIL = 8
"""Prompt tokens kept before an output in the store, so that its beginning has a context."""


class SuffixDrafter:
    """An automaton for each sequence over its own text, and one for each salt over the outputs of earlier sequences."""

    def __init__(self, *, max_nodes: int = 16, own_bytes: int = 32 << 20, store_bytes: int = 64 << 20) -> None:
        """`store_bytes` 0: no store, nothing is shared. Beyond `own_bytes` a sequence's oldest text is let go."""
        check_int("max_nodes", max_nodes, 1, MAX_DRAFT)
        check_int("own_bytes", own_bytes, LEAST_BYTES)
        check_int("store_bytes", store_bytes, 0)
        self._max_nodes = max_nodes
        self._own_bytes = own_bytes
        self._store = TextStore(store_bytes)
        self._texts: dict[SequenceKey, _OwnText] = {}
        self._rates: ScoreTable[int] = ScoreTable(_PRIORS.__getitem__)

    @property
    def max_nodes(self) -> int:
        return self._max_nodes

    @property
    def num_bytes(self) -> int:
        """Held by all automata together."""
        return self._store.num_bytes + sum(text.automaton.num_bytes for text in self._texts.values())

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        return [self._propose(ask) for ask in asks]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Learn from the proposal as this drafter remembers it."""
        text = self._texts.get(ask.key)
        if text is None or text.asked_at != len(ask.token_ids):
            return
        stood, tested = text.proposal.trace(verdict.token_ids)
        for node in tested:
            self._rates.learn(text.kinds[node], node in stood)

    def forget(self, sequence: Sequence) -> None:
        self._texts.pop(sequence.key, None)
        request = sequence.request
        if sequence.output_len and not request.drafting.off:
            start = max(0, sequence.prompt_len - PROMPT_TAIL)
            self._store.add(request.cache_salt, sequence.tokens.view[start:])

    def _propose(self, ask: DraftAsk) -> TokenTree:
        text = self._texts.get(ask.key)
        if text is None:
            text = self._texts[ask.key] = _OwnText(self._own_bytes)
        text.catch_up(ask.token_ids)
        shared = self._store.automata(ask.salt)
        readers = [text.automaton.repeated(), *(_reader(automaton, ask.token_ids) for automaton in shared)]
        growth = grow(
            readers,
            [_WORTH[OWN], *[_WORTH[STORE]] * len(shared)],
            max_nodes=min(ask.max_nodes, self._max_nodes),
            max_depth=ask.max_depth,
            min_score=MIN_WORTH,
        )
        text.kinds = [
            _kind(STORE if source else OWN, grade) for source, grade in zip(growth.sources, growth.grades, strict=True)
        ]
        scores = tuple(map(self._rates.rate, text.kinds))
        text.proposal = TokenTree(tuple(growth.token_ids), tuple(growth.parents), scores)
        text.asked_at = len(ask.token_ids)
        return text.proposal


@dataclass(slots=True)
class _OwnText:
    """One sequence: its automaton, and the proposal whose fate is not known yet."""

    max_bytes: int
    automaton: SuffixAutomaton = field(init=False)
    num_read: int = 0
    asked_at: int = -1  # length of the text then
    proposal: TokenTree = NO_DRAFT
    kinds: list[int] = field(default_factory=list)  # of its nodes

    def __post_init__(self) -> None:
        self.automaton = SuffixAutomaton(self.max_bytes)

    def catch_up(self, token_ids: Ids) -> None:
        """Read what was appended since."""
        while self.num_read < len(token_ids):
            self.num_read += self.automaton.extend(token_ids[self.num_read :])
            if self.num_read < len(token_ids):
                self._let_go(token_ids)

    def _let_go(self, token_ids: Ids) -> None:
        """Make room: begin anew with the newer half of what was read."""
        kept = self.automaton.num_tokens
        while True:
            kept //= 2
            self.automaton = SuffixAutomaton(self.max_bytes)
            if self.automaton.extend(token_ids[self.num_read - kept : self.num_read]) == kept:
                return


def _reader(automaton: SuffixAutomaton, token_ids: Ids) -> SuffixReader:
    reader = automaton.reader()
    reader.advance(token_ids[-MAX_CONTEXT:])
    return reader


def _kind(origin: int, grade: int) -> int:
    return origin * len(GRADES) + grade


def prior(origin: int, grade: Grade) -> float:
    """Rates of a 135M model's greedy answers to Spec-Bench and HumanEval prompts, smoothed by hand.

    Where one follower prevails, its odds grow with the context's length. Elsewhere followers compete, and about half of
    their share is right. Others' texts are worth much less than one's own, until the context is long.
    """
    single = grade.context_len == 1
    if grade.order > 0 or grade.share < 0.5:
        rate = 0.04 if grade.order > 0 else 0.03 + 0.5 * grade.share
        return rate * (0.6 if single else 1.0) * (1.0 if origin == OWN else 0.5)
    share = 0.92 * grade.share + 0.08  # about the bucket's middle
    scale, power = (0.35, 1.3) if origin == OWN else (0.025, 1.5)
    odds = scale * share / (1.0 - share) * math.pow(grade.context_len, power)
    return odds / (1.0 + odds)


_PRIORS = [prior(origin, grade) for origin in (OWN, STORE) for grade in GRADES]
_WORTH: list[Worth] = [np.array(_PRIORS[_kind(o, 0) : _kind(o, len(GRADES))], dtype=np.float32) for o in (OWN, STORE)]
