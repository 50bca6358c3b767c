"""How a step drafts: through which exits, how many tokens at most, and where it is too unsure to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from offramp.core import DraftAsk
from offramp.draft.payoff import Payoff

TRIAL_LEN = 2
"""Tokens of a draft that is made to learn what drafts are worth."""
PATIENCE, LONGEST_PATIENCE = 64, 1024
"""Steps without a draft before one is tried all the same; twice as many after each trial that changed nothing."""
DECAY = 0.98
"""Of older counts, at each new one."""
FIRST_RATE, WEIGHT = 0.7, 6.0
"""The share of drafts that is thought to stand before any was tried, and how many tests that counts as; it fades."""
HIGHEST_PRICE = 0.95
CONTEXT_STEP = 128
"""Plans are kept for contexts so far apart."""
REFRESH = 64
"""Steps after which plans are made anew: the cost model learns."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """How a step drafts. Prices are chances to stand."""

    exits: tuple[int, ...]  # of self-drafting, rising; a row goes on to the next one where it is unsure
    max_len: int  # 0: nothing is drafted
    keep_price: float = 0.0  # of a token at the last exit
    stay_price: float = 0.0  # of a token at an exit before that
    draft_price: float = 0.0  # of drafting behind a token: the chance that all up to it stands


NO_PLAN = DraftPlan((), 0)


@dataclass(slots=True)
class Rounds:
    """What one step's drafting ran: rows through layers and heads."""

    count: int = 0
    layers: int = 0  # of the newest row of each sequence, summed over rounds
    heads: int = 0  # rows of logits
    rows: int = 0  # newest rows, summed over rounds


class DraftPlans(Protocol):
    """Decides how a step drafts; whatever it decides, the output stays the same."""

    def plan(self, asks: Sequence[DraftAsk]) -> DraftPlan: ...

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        """What drafting by the plan took."""
        ...

    def learn(self, plan: DraftPlan, greedy: bool, stood: int, tested: int) -> None:
        """Of a draft by the plan so many tokens were put to the test, and so many of those stood."""
        ...


class FixedPlans:
    """All exits, the same length always; stateless. Unsure rows go deeper, and the last exit's word counts."""

    def __init__(self, exits: Sequence[int], max_len: int, *, stay_price: float = 0.5, keep_price: float = 0.0) -> None:
        self._plan = DraftPlan(tuple(exits), max_len, keep_price, stay_price)

    def plan(self, asks: Sequence[DraftAsk]) -> DraftPlan:
        return self._plan

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        """Nothing to learn."""

    def learn(self, plan: DraftPlan, greedy: bool, stood: int, tested: int) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class DecayedShare:
    """How many drafts stood of those put to the test; the latest count most."""

    stood: float = WEIGHT * FIRST_RATE
    tested: float = WEIGHT

    @property
    def rate(self) -> float:
        return self.stood / self.tested

    def learn(self, stood: int, tested: int) -> None:
        keep = DECAY**tested
        self.stood = keep * self.stood + stood
        self.tested = keep * self.tested + tested


class Trials:
    """When to draft although it is not predicted to pay: seldom, and ever more so."""

    def __init__(self) -> None:
        self._idle = 0
        self._patience = PATIENCE

    def due(self) -> bool:
        """Another step goes without a draft, or this one is tried."""
        self._idle += 1
        if self._idle < self._patience:
            return False
        self._idle, self._patience = 0, min(LONGEST_PATIENCE, 2 * self._patience)
        return True

    def drafted(self) -> None:
        """Drafts pay."""
        self._idle, self._patience = 0, PATIENCE


def paid_plan(payoff: Payoff, exits: tuple[int, ...] = ()) -> DraftPlan:
    """Draft so many tokens, and stop where the next is not worth its time."""
    keep, further = min(HIGHEST_PRICE, payoff.verify_price), min(HIGHEST_PRICE, payoff.draft_price)
    return DraftPlan(exits, payoff.num_tokens, keep, further, further)
