"""Which exits self-drafting goes through, and for how many tokens: what acceptance and costs say pays most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.core import CostModel, StepLoad
from offramp.draft.beliefs import DECAY
from offramp.draft.paid_plans import Exits, PaidPlans, Prospect
from offramp.draft.payoff import Payoff, best_payoff
from offramp.draft.plans import DraftPlan, Rounds

FASTEST, SLOWEST = 0.5, 4.0
"""Bounds of the correction of what drafting is predicted to take."""


@dataclass(slots=True)
class _Ran:
    """How deep the rows of one choice of exits go. Decayed counts."""

    exits: Exits
    rows: float = 0.0
    layers: float = 0.0
    heads: float = 0.0

    @property
    def depth(self) -> float:
        """Layers of a row; the last exit's before any ran."""
        return (self.layers + self.exits[-1]) / (self.rows + 1.0)

    @property
    def asked(self) -> float:
        """Heads of a row."""
        return (self.heads + len(self.exits)) / (self.rows + 1.0)

    def ran(self, rounds: Rounds) -> None:
        keep = DECAY**rounds.rows
        self.rows = keep * self.rows + rounds.rows
        self.layers = keep * self.layers + rounds.layers
        self.heads = keep * self.heads + rounds.heads


class PaidExits(PaidPlans):
    """Exits and length with the most expected tokens a predicted second; none where none beats plain decoding.

    Each exit alone is a choice, and all of them together. What drafting takes is predicted by the cost model and
    corrected by what it took.
    """

    def __init__(self, costs: CostModel, num_layers: int, exits: Sequence[int], max_len: int) -> None:
        choices: list[Exits] = [(layer,) for layer in exits]
        if len(exits) > 1:
            choices.append(tuple(exits))
        super().__init__(costs, num_layers, max_len, choices)
        self._ran = {choice: _Ran(choice) for choice in choices}
        self._correction = 1.0

    def _knows(self, num_sequences: int) -> bool:
        return True

    def _weigh(self, rates: Sequence[float], num_sequences: int, load: StepLoad) -> Prospect:
        prospects = [
            Prospect(self._payoff(ran, rate, num_sequences, load), ran.exits)
            for ran, rate in zip(self._ran.values(), rates, strict=True)
        ]
        return max(prospects, key=lambda prospect: prospect.payoff.goodput)

    def _timed(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        self._ran[plan.exits].ran(rounds)
        depth, asked = rounds.layers / rounds.rows, rounds.heads / rounds.rows
        predicted = rounds.count * self._round_seconds(round(rounds.rows / rounds.count), depth, asked, context)
        if predicted > 0:
            ratio = min(SLOWEST, max(FASTEST, seconds / predicted))
            self._correction += (ratio - self._correction) / 16

    def _surprised(self, num_sequences: int, seconds: float) -> None:
        """The engine tells nothing of steps whose rows began while they drafted."""

    def _drafting_seconds(self, num_sequences: int, load: StepLoad, rounds: Rounds) -> float:
        depth, asked = rounds.layers / rounds.rows, rounds.heads / rounds.rows
        count = round(rounds.rows / rounds.count)
        drafting = self._correction * rounds.count * self._round_seconds(count, depth, asked, load.context)
        return drafting + self._verify(depth, load, rounds.nodes) - self._verify(depth, load, 0)

    def _verify(self, depth: float, load: StepLoad, more: int) -> float:
        """So many drafts. The last one, and what runs beside, goes all the way; others go on from where they wait."""
        if not more:
            return self._predictions.step(load, 0)
        first = self._seconds(load.num_rows, depth, load.context, 0)
        rest = self._predictions.num_layers - depth
        deeper = self._seconds(load.num_rows + more, rest, load.context, load.num_head_rows + more)
        return first + deeper + load.overhead

    def _payoff(self, ran: _Ran, rate: float, num_sequences: int, load: StepLoad) -> Payoff:
        depth = ran.depth
        return best_payoff(
            num_sequences=num_sequences,
            rate=rate,
            most=self._max_len,
            round_seconds=self._correction * self._round_seconds(num_sequences, depth, ran.asked, load.context),
            verify=lambda count: self._verify(depth, load, num_sequences * count),
            num_beside=max(0, load.num_head_rows - num_sequences),
        )

    def _round_seconds(self, num_rows: int, depth: float, asked: float, context: int) -> float:
        layers = self._seconds(num_rows, depth, context, 0)
        return layers + asked * self._predictions.seconds(num_rows, 0, 0, num_rows)

    def _seconds(self, num_rows: int, depth: float, context: int, num_head_rows: int) -> float:
        """For a mean depth: between those of its neighbours."""
        low = int(depth)
        seconds = self._predictions.seconds(num_rows, max(1, low), context, num_head_rows)
        if depth > low:
            high = self._predictions.seconds(num_rows, low + 1, context, num_head_rows)
            seconds += (depth - low) * (high - seconds)
        return seconds
