"""Drafts as long as they pay: what is common to drafters whose guesses take time.

A way to draft has beliefs of its own. Which one pays most, and how long, follows from them, from what the step runs
besides and from predicted costs. A sequence for which none pays is left alone, but for trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offramp.core import CostModel, DraftAsk, SequenceKey, StepLoad
from offramp.draft.beliefs import Beliefs
from offramp.draft.payoff import Payoff
from offramp.draft.plans import HIGHEST_PRICE, Chosen, DraftPlan, Rounds
from offramp.draft.predictions import CONTEXT_STEP, Predictions, load_of
from offramp.draft.trials import Trials

TRIAL_LEN = 2
"""Tokens of a draft that is made to learn what drafts are worth."""
GRAIN = 64
"""Beliefs are told apart by so many parts of 1."""
OVERHEAD_DIGITS = 4
"""Steps' overheads are told apart by so many digits of a second."""

Exits = tuple[int, ...]
"""A way to draft: self-drafting's exits, or none."""
Rates = tuple[int, ...]
"""What is believed of each way, in parts of `GRAIN`."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The way that pays most."""

    payoff: Payoff
    exits: Exits

    @property
    def pays(self) -> bool:
        return self.payoff.num_tokens > 0


class PaidPlans(ABC):
    """Implements `DraftPlans`. `ways` are the ways to draft."""

    def __init__(self, costs: CostModel, num_layers: int, max_len: int, ways: Iterable[Exits]) -> None:
        self._predictions = Predictions(costs, num_layers)
        self._max_len = max_len
        self._beliefs = {exits: Beliefs() for exits in ways}
        self._trials = Trials()
        self._own_trials: dict[SequenceKey, Trials] = {}  # of sequences that are doubted while others are drafted for
        self._found: dict[tuple[Rates, int, StepLoad], Prospect] = {}  # until something is learned of costs

    @abstractmethod
    def _knows(self, num_sequences: int) -> bool:
        """What drafting for so many takes has been seen often enough."""

    @abstractmethod
    def _weigh(self, rates: Sequence[float], num_sequences: int, load: StepLoad) -> Prospect:
        """The way that pays most for so many sequences of the step, by these rates of the ways."""

    @abstractmethod
    def _timed(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        """Learn what rounds took."""

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        if not self._knows(num_alike):
            return 0.0
        prospect = self._prospect(self._rates([ask]), num_alike, load_of([ask], num_alike))
        return prospect.payoff.goodput if prospect.pays else 0.0

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        if self._predictions.begin_step():
            self._found.clear()
        if not asks:
            return Chosen()
        load, count = load_of(asks), len(asks)
        if not self._knows(count):
            return Chosen(asks, self._trial(asks, load))
        fresh = tuple(round(GRAIN * beliefs.of_all(asks[0].greedy)) for beliefs in self._beliefs.values())
        promising = self._prospect(fresh, count, load).pays
        paying = [ask for ask in asks if self._prospect(self._rates([ask]), count, load).pays]
        if not paying:
            now = asks if self._trials.due() else ()
            return Chosen(now, self._trial(asks, load), asks if self._trials.soon else (), promising)
        self._trials.drafted()
        due_too, soon = self._doubted(asks, paying)
        return Chosen([*paying, *due_too], self._paid_plan(paying, load), soon, promising)

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        if plan.trial and num_sequences:
            plain = self._predictions.seconds(num_sequences, self._predictions.num_layers, context, num_sequences)
            self._trials.took((rounds.catch_up_seconds + seconds) / plain)
        if rounds.rows:
            self._found.clear()
            self._timed(plan, num_sequences, context, rounds, seconds)

    def learn(self, plan: DraftPlan, ask: DraftAsk, stood: int, tested: int) -> None:
        self._beliefs[plan.exits].learn(ask, stood, tested)

    def forget(self, key: SequenceKey) -> None:
        self._own_trials.pop(key, None)
        for beliefs in self._beliefs.values():
            beliefs.forget(key)

    def _rates(self, asks: Sequence[DraftAsk]) -> Rates:
        return tuple(round(GRAIN * beliefs.of(asks)) for beliefs in self._beliefs.values())

    def _prospect(self, rates: Rates, num_sequences: int, load: StepLoad) -> Prospect:
        context, overhead = load.context // CONTEXT_STEP, round(load.overhead, OVERHEAD_DIGITS)
        key = rates, num_sequences, StepLoad(load.num_rows, load.num_head_rows, context, overhead)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._weigh([rate / GRAIN for rate in rates], num_sequences, load)
        return found

    def _doubted(self, asks: Sequence[DraftAsk], paying: Sequence[DraftAsk]) -> tuple[list[DraftAsk], list[DraftAsk]]:
        """Of the others, those whose own trial is due, and those whose is near."""
        keys = {ask.key for ask in paying}
        due: list[DraftAsk] = []
        soon: list[DraftAsk] = []
        for ask in asks:
            if ask.key not in keys:
                trials = self._own_trials.setdefault(ask.key, Trials())
                if trials.due():
                    due.append(ask)
                elif trials.soon:
                    soon.append(ask)
        return due, soon

    def _paid_plan(self, asks: Sequence[DraftAsk], load: StepLoad) -> DraftPlan:
        """What pays for these together; a trial where that is none, or is not known of so few."""
        if not self._knows(len(asks)):
            return self._trial(asks, load)
        prospect = self._prospect(self._rates(asks), len(asks), load)
        return _paid(prospect) if prospect.pays else self._trial(asks, load)

    def _trial(self, asks: Sequence[DraftAsk], load: StepLoad) -> DraftPlan:
        exits = self._likeliest_way(asks, load)
        return DraftPlan(exits, min(TRIAL_LEN, self._max_len), trial=True)

    def _likeliest_way(self, asks: Sequence[DraftAsk], load: StepLoad) -> Exits:
        if len(self._beliefs) == 1:
            return next(iter(self._beliefs))
        return self._prospect(self._rates(asks), len(asks), load).exits


def _paid(prospect: Prospect) -> DraftPlan:
    """Draft so many tokens, and stop where the next is not worth its time."""
    payoff = prospect.payoff
    keep, further = min(HIGHEST_PRICE, payoff.verify_price), min(HIGHEST_PRICE, payoff.draft_price)
    return DraftPlan(prospect.exits, payoff.num_tokens, keep, further, further)
