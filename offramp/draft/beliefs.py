"""How often drafts are believed to stand: those of one sequence, weighed against those of all that draw alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.core import DraftAsk, SequenceKey

DECAY = 0.98
"""Of older counts, at each new one."""
FIRST_RATE, WEIGHT = 0.5, 6.0
"""The share of drafts that is thought to stand before any was tried, and how many tests that counts as; it fades."""
OWN_WEIGHT = 8.0
"""Tests that the share of all sequences counts as, against a sequence's own; it never fades."""


@dataclass(slots=True)
class DecayedShare:
    """How many drafts stood of those put to the test; the latest count most."""

    stood: float = 0.0
    tested: float = 0.0

    def learn(self, stood: int, tested: int) -> None:
        keep = DECAY**tested
        self.stood = keep * self.stood + stood
        self.tested = keep * self.tested + tested


class Beliefs:
    """Of one way to draft. Greedy and sampled sequences are kept apart."""

    def __init__(self) -> None:
        self._all = {greedy: DecayedShare(WEIGHT * FIRST_RATE, WEIGHT) for greedy in (False, True)}
        self._own: dict[SequenceKey, DecayedShare] = {}

    def of_all(self, greedy: bool) -> float:
        """Of a sequence of which nothing is known."""
        share = self._all[greedy]
        return share.stood / share.tested

    def of(self, asks: Sequence[DraftAsk]) -> float:
        """The mean over these sequences."""
        return sum(map(self._of_one, asks)) / len(asks)

    def learn(self, ask: DraftAsk, stood: int, tested: int) -> None:
        self._all[ask.greedy].learn(stood, tested)
        self._own.setdefault(ask.key, DecayedShare()).learn(stood, tested)

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended."""
        self._own.pop(key, None)

    def _of_one(self, ask: DraftAsk) -> float:
        rate, own = self.of_all(ask.greedy), self._own.get(ask.key)
        return rate if own is None else (own.stood + OWN_WEIGHT * rate) / (own.tested + OWN_WEIGHT)
