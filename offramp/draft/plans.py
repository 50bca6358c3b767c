"""How a step drafts: for whom, through which exits, how many tokens at most, and where it is too unsure to go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from offramp.core import DraftAsk, SequenceKey

HIGHEST_PRICE = 0.95


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """How a step drafts. Prices are chances to stand."""

    exits: tuple[int, ...]  # of self-drafting, rising; a row goes on to the next one where it is unsure
    max_len: int  # 0: nothing is drafted
    keep_price: float = 0.0  # of a token at the last exit
    stay_price: float = 0.0  # of a token at an exit before that
    draft_price: float = 0.0  # of drafting behind a token: the chance that all up to it stands
    pays: bool = False  # it is predicted to


NO_PLAN = DraftPlan((), 0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """For whom a step drafts, and how."""

    asks: Sequence[DraftAsk] = ()
    plan: DraftPlan = NO_PLAN
    soon: Sequence[DraftAsk] = ()  # who may be drafted for soon
    promising: bool = True  # a sequence that begins now is drafted for


@dataclass(slots=True)
class Rounds:
    """What one step's drafting ran: rows through layers and heads."""

    count: int = 0
    layers: int = 0  # of the newest row of each sequence, summed over rounds
    heads: int = 0  # rows of logits
    rows: int = 0  # newest rows, summed over rounds
    nodes: int = 0  # of the drafts that they came to
    texts: int = 0  # that were drafted for
    catch_up_seconds: float = 0.0  # of prompts, before the rounds


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one draft."""

    stood: int  # tokens that are the text's own
    tested: int  # rounds that could have brought one of those
    brought: int  # of those that stood, verified ones: plain decoding would have come to the others in this step too


class DraftPlans(Protocol):
    """Decides how a step drafts; whatever it decides, the output stays the same."""

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        """Expected tokens a second of the step, if so many like this one draft; 0 where nobody drafts now.

        Infinite where nobody asks what it costs.
        """
        ...

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        """Called once a step, with those that may be drafted for, if any."""
        ...

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        """What drafting by the plan took, besides catching up."""
        ...

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        """Of the next tokens to stand so many are no gain: others drafted them for nothing."""
        ...

    def learn(self, plan: DraftPlan, ask: DraftAsk, judged: Judged) -> None:
        """What became of a draft by the plan."""
        ...

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended."""
        ...


class FixedPlans:
    """All exits, the same length always; stateless. Unsure rows go deeper, and the last exit's word counts."""

    def __init__(self, exits: Sequence[int], max_len: int, *, stay_price: float = 0.5, keep_price: float = 0.0) -> None:
        self._plan = DraftPlan(tuple(exits), max_len, keep_price, stay_price)

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        return math.inf if self._plan.max_len else 0.0

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        return Chosen(asks, self._plan)

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        """Nothing to learn."""

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        """Nothing to learn."""

    def learn(self, plan: DraftPlan, ask: DraftAsk, judged: Judged) -> None:
        """Nothing to learn."""

    def forget(self, key: SequenceKey) -> None:
        """Nothing kept."""
