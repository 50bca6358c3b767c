"""Which exits self-drafting goes through, and for how many tokens: what acceptance and costs say pays most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from offramp.core import CostModel, DraftAsk
from offramp.draft.payoff import Payoff, best_payoff
from offramp.draft.plans import (
    CONTEXT_STEP,
    DECAY,
    NO_PLAN,
    REFRESH,
    TRIAL_LEN,
    DecayedShare,
    DraftPlan,
    Rounds,
    Trials,
    paid_plan,
)

FASTEST, SLOWEST = 0.5, 4.0
"""Bounds of the correction of what drafting is predicted to take."""


@dataclass(slots=True)
class _Arm:
    """One choice of exits: how its drafts stand, and how deep its rows go. Decayed counts."""

    exits: tuple[int, ...]
    share: DecayedShare = field(default_factory=DecayedShare)
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


class PaidExits:
    """Exits and length with the most expected tokens a predicted second; none where none beats plain decoding.

    Each exit alone is a choice, and all of them together. What drafting takes is predicted by the cost model and
    corrected by what it took.
    """

    def __init__(self, costs: CostModel, num_layers: int, exits: Sequence[int], max_len: int) -> None:
        choices: list[tuple[int, ...]] = [(layer,) for layer in exits]
        if len(exits) > 1:
            choices.append(tuple(exits))
        self._costs = costs
        self._num_layers = num_layers
        self._max_len = max_len
        self._arms = {greedy: {exits: _Arm(exits) for exits in choices} for greedy in (False, True)}
        self._correction = 1.0
        self._trials = Trials()
        self._found: dict[tuple[bool, int, int], tuple[Payoff, _Arm]] = {}  # until something is learned
        self._num_plans = 0

    def plan(self, asks: Sequence[DraftAsk]) -> DraftPlan:
        if not asks:
            return NO_PLAN
        greedy = sum(ask.greedy for ask in asks) * 2 >= len(asks)
        context = sum(len(ask.token_ids) for ask in asks) // len(asks)
        payoff, arm = self._best(greedy, len(asks), context // CONTEXT_STEP)
        if payoff.num_tokens:
            self._trials.drafted()
            return paid_plan(payoff, arm.exits)
        return DraftPlan(arm.exits, min(TRIAL_LEN, self._max_len)) if self._trials.due() else NO_PLAN

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        if not rounds.rows:
            return
        self._found.clear()
        for arms in self._arms.values():
            arms[plan.exits].ran(rounds)
        per_round = rounds.rows / rounds.count
        depth, asked = rounds.layers / rounds.rows, rounds.heads / rounds.rows
        predicted = rounds.count * self._round_seconds(round(per_round), depth, asked, context)
        if predicted > 0:
            ratio = min(SLOWEST, max(FASTEST, seconds / predicted))
            self._correction += (ratio - self._correction) / 16

    def learn(self, plan: DraftPlan, greedy: bool, stood: int, tested: int) -> None:
        self._found.clear()
        self._arms[greedy][plan.exits].share.learn(stood, tested)

    def _best(self, greedy: bool, num_sequences: int, steps: int) -> tuple[Payoff, _Arm]:
        """The choice that pays most, for a context of so many steps."""
        self._num_plans += 1
        if self._num_plans % REFRESH == 0:
            self._found.clear()
        key = greedy, num_sequences, steps
        if key not in self._found:
            context = steps * CONTEXT_STEP + CONTEXT_STEP // 2
            payoffs = [(self._payoff(arm, num_sequences, context), arm) for arm in self._arms[greedy].values()]
            self._found[key] = max(payoffs, key=lambda pair: pair[0].goodput)
        return self._found[key]

    def _payoff(self, arm: _Arm, num_sequences: int, context: int) -> Payoff:
        depth = arm.depth
        rest = self._num_layers - depth

        def verify(count: int) -> float:
            """The last draft goes all the way, the others go on from where they wait."""
            rows = num_sequences * (1 + count)
            if not count:
                return self._seconds(rows, self._num_layers, context, rows)
            last = self._seconds(num_sequences, depth, context, 0)
            return last + self._seconds(rows, rest, context, rows)

        return best_payoff(
            num_sequences=num_sequences,
            rate=arm.share.rate,
            most=self._max_len,
            round_seconds=self._correction * self._round_seconds(num_sequences, depth, arm.asked, context),
            verify=verify,
        )

    def _round_seconds(self, num_rows: int, depth: float, asked: float, context: int) -> float:
        layers = self._seconds(num_rows, depth, context, 0)
        return layers + asked * self._costs.seconds(num_rows, 0, 0)

    def _seconds(self, num_rows: int, depth: float, context: int, num_head_rows: int) -> float:
        """For a mean depth: between those of its neighbours."""
        low = int(depth)
        seconds = self._costs.seconds(num_rows, max(1, low), context, num_head_rows=num_head_rows)
        if depth > low:
            high = self._costs.seconds(num_rows, low + 1, context, num_head_rows=num_head_rows)
            seconds += (depth - low) * (high - seconds)
        return seconds
