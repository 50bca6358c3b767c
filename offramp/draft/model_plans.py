"""How many tokens a draft model drafts: what acceptance and costs say pays most."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.core import CostModel, DraftAsk
from offramp.draft.payoff import Payoff, best_payoff
from offramp.draft.plans import (
    CONTEXT_STEP,
    NO_PLAN,
    REFRESH,
    TRIAL_LEN,
    DecayedShare,
    DraftPlan,
    Rounds,
    Trials,
    paid_plan,
)


class PaidLength:
    """The length with the most expected tokens a second; 0 where none beats plain decoding.

    The target's steps are predicted by its cost model; what a round of drafting takes is the decayed mean of what
    rounds took, by the number of sequences (1, 2, 3 to 4, ...). A number not seen yet is tried with a short draft.
    """

    def __init__(self, costs: CostModel, num_layers: int, max_len: int) -> None:
        self._costs = costs
        self._num_layers = num_layers
        self._max_len = max_len
        self._shares = {greedy: DecayedShare() for greedy in (False, True)}
        self._round_seconds: dict[int, float] = {}
        self._trials = Trials()
        self._found: dict[tuple[bool, int, int], Payoff] = {}  # until something is learned
        self._num_plans = 0

    def plan(self, asks: Sequence[DraftAsk]) -> DraftPlan:
        if not asks:
            return NO_PLAN
        trial = DraftPlan((), min(TRIAL_LEN, self._max_len))
        round_seconds = self._round_seconds.get(_band(len(asks)))
        if round_seconds is None:
            return trial
        greedy = sum(ask.greedy for ask in asks) * 2 >= len(asks)
        context = sum(len(ask.token_ids) for ask in asks) // len(asks)
        payoff = self._best(greedy, len(asks), context // CONTEXT_STEP, round_seconds)
        if payoff.num_tokens:
            self._trials.drafted()
            return paid_plan(payoff)
        return trial if self._trials.due() else NO_PLAN

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        if rounds.count:
            self._found.clear()
            band, each = _band(num_sequences), seconds / rounds.count
            known = self._round_seconds.setdefault(band, each)
            self._round_seconds[band] = known + (each - known) / 8

    def learn(self, plan: DraftPlan, greedy: bool, stood: int, tested: int) -> None:
        self._found.clear()
        self._shares[greedy].learn(stood, tested)

    def _best(self, greedy: bool, num_sequences: int, steps: int, round_seconds: float) -> Payoff:
        """The length that pays most, for a context of so many steps."""
        self._num_plans += 1
        if self._num_plans % REFRESH == 0:
            self._found.clear()
        key = greedy, num_sequences, steps
        if key not in self._found:
            context = steps * CONTEXT_STEP + CONTEXT_STEP // 2
            self._found[key] = best_payoff(
                num_sequences=num_sequences,
                rate=self._shares[greedy].rate,
                most=self._max_len,
                round_seconds=round_seconds,
                verify=lambda count: self._costs.seconds(num_sequences * (1 + count), self._num_layers, context),
            )
        return self._found[key]


def _band(num_sequences: int) -> int:
    return (num_sequences - 1).bit_length()
