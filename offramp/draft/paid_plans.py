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
from offramp.draft.plans import HIGHEST_PRICE, NO_PLAN, Chosen, DraftPlan, Judged, Rounds
from offramp.draft.predictions import CONTEXT_STEP, Predictions, load_of
from offramp.draft.trials import SHARE, Allowance, TextTrial

TRIAL_LEN = 2
"""Tokens of a draft that is made to learn what drafting takes."""
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
        self._allowance = Allowance()
        self._trials: dict[SequenceKey, TextTrial] = {}
        self._load = StepLoad(1, 1, 0, 0.0)  # of the step at work
        self._price = 0.0  # of its drafting for one sequence, in tokens of plain steps
        self._drafted = 0  # sequences of it
        self._shared: dict[SequenceKey, int] = {}  # tokens of it that others drafted too
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

    @abstractmethod
    def _surprised(self, num_sequences: int, seconds: float) -> None:
        """Learn what a step that drafted for so many took beyond its drafting and what its rows should have taken."""

    @abstractmethod
    def _drafting_seconds(self, num_sequences: int, load: StepLoad, rounds: Rounds) -> float:
        """What such rounds make a step longer by, their verification included. No single step's time decides it."""

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        if not self._knows(num_alike) or not self._is_awake(ask, num_alike):
            return 0.0
        return self._prospect(self._rates([ask]), num_alike, load_of([ask], num_alike)).payoff.goodput

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        if self._predictions.begin_step():
            self._found.clear()
        drafted, self._drafted = self._drafted, 0
        if not asks:
            return Chosen()
        load = self._load = load_of(asks)
        count = len(asks)
        if drafted and load.surprise is not None:
            self._found.clear()
            self._surprised(drafted, load.surprise)
        self._allowance.add(SHARE * load.num_head_rows)
        if not self._knows(count):
            tried = asks if self._allowance.is_enough else ()
            return Chosen(tried, self._short_plan, promising=bool(tried))
        awake, asleep = self._awake(asks)
        soon = [ask for ask in asleep if self._trials[ask.key].soon]
        promising = self._allowance.begins_awake(self._is_promising(asks[0], count))
        return Chosen(awake, self._plan(awake, load) if awake else NO_PLAN, soon, promising)

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        load = self._load
        token_seconds = self._predictions.step(load, 0) / load.num_head_rows
        self._allowance.add(-rounds.catch_up_seconds / token_seconds)
        if rounds.rows:
            self._found.clear()
            self._drafted = num_sequences
            self._timed(plan, num_sequences, context, rounds, seconds)
            self._price = self._drafting_seconds(num_sequences, load, rounds) / (rounds.texts * token_seconds)

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        self._shared[key] = num_tokens

    def learn(self, plan: DraftPlan, ask: DraftAsk, judged: Judged) -> None:
        self._beliefs[plan.exits].learn(ask, judged.stood, judged.tested)
        trial, shared = self._trials.get(ask.key), self._shared.pop(ask.key, 0)
        gain = max(0, judged.brought - shared) - self._price
        if trial is not None and trial.awake:
            trial.settle(gain, self._allowance, pays=plan.pays)
        else:
            self._allowance.add(gain)  # what so many take was being learned

    def forget(self, key: SequenceKey) -> None:
        trial = self._trials.pop(key, None)
        if trial is not None:
            trial.end(self._allowance)
        self._shared.pop(key, None)
        for beliefs in self._beliefs.values():
            beliefs.forget(key)

    @property
    def _short_plan(self) -> DraftPlan:
        """To learn what drafting takes."""
        return DraftPlan(next(iter(self._beliefs)), min(TRIAL_LEN, self._max_len))

    def _is_awake(self, ask: DraftAsk, num_sequences: int) -> bool:
        """Or would be, if it were asked for the first time."""
        trial = self._trials.get(ask.key)
        if trial is not None:
            return trial.awake
        return self._allowance.begins_awake(self._is_promising(ask, num_sequences))

    def _trial_of(self, ask: DraftAsk, num_sequences: int) -> TextTrial:
        trial = self._trials.get(ask.key)
        if trial is None:
            promising = self._is_promising(ask, num_sequences)
            trial = self._trials[ask.key] = TextTrial.begin(self._allowance, promising=promising)
        return trial

    def _is_promising(self, ask: DraftAsk, num_sequences: int) -> bool:
        """Drafts are predicted to pay for a text of which nothing is known."""
        fresh = tuple(round(GRAIN * beliefs.of_all(ask.greedy)) for beliefs in self._beliefs.values())
        return self._prospect(fresh, num_sequences, load_of([ask], num_sequences)).pays

    def _awake(self, asks: Sequence[DraftAsk]) -> tuple[list[DraftAsk], list[DraftAsk]]:
        """Those to draft for, and the others."""
        awake: list[DraftAsk] = []
        asleep: list[DraftAsk] = []
        for ask in asks:
            trial = self._trial_of(ask, len(asks))
            if not trial.awake:
                trial.sleep(self._allowance)
            (awake if trial.awake else asleep).append(ask)
        return awake, asleep

    def _plan(self, asks: Sequence[DraftAsk], load: StepLoad) -> DraftPlan:
        """What pays most for these together, one token at least; a short draft where its time is not known of so few.

        It stops where the next token is not worth its time.
        """
        if not self._knows(len(asks)):
            return self._short_plan
        prospect = self._prospect(self._rates(asks), len(asks), load)
        payoff = prospect.payoff
        keep, further = min(HIGHEST_PRICE, payoff.verify_price), min(HIGHEST_PRICE, payoff.draft_price)
        return DraftPlan(prospect.exits, max(1, payoff.num_tokens), keep, further, further, prospect.pays)

    def _rates(self, asks: Sequence[DraftAsk]) -> Rates:
        return tuple(round(GRAIN * beliefs.of(asks)) for beliefs in self._beliefs.values())

    def _prospect(self, rates: Rates, num_sequences: int, load: StepLoad) -> Prospect:
        context, overhead = load.context // CONTEXT_STEP, round(load.overhead, OVERHEAD_DIGITS)
        key = rates, num_sequences, StepLoad(load.num_rows, load.num_head_rows, context, overhead)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._weigh([rate / GRAIN for rate in rates], num_sequences, load)
        return found
