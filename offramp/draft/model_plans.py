"""How many tokens a draft model drafts: what acceptance and costs say pays most."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.core import CostModel, DraftAsk
from offramp.draft.payoff import best_payoff
from offramp.draft.plans import NO_PLAN, TRIAL_LEN, DecayedShare, DraftPlan, Rounds, Trials, paid_plan


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

    def plan(self, asks: Sequence[DraftAsk]) -> DraftPlan:
        if not asks:
            return NO_PLAN
        trial = DraftPlan((), min(TRIAL_LEN, self._max_len))
        round_seconds = self._round_seconds.get(_band(len(asks)))
        if round_seconds is None:
            return trial
        greedy = sum(ask.greedy for ask in asks) * 2 >= len(asks)
        context = sum(len(ask.token_ids) for ask in asks) // len(asks)
        payoff = best_payoff(
            num_sequences=len(asks),
            rate=self._shares[greedy].rate,
            most=self._max_len,
            round_seconds=round_seconds,
            verify=lambda count: self._costs.seconds(len(asks) * (1 + count), self._num_layers, context),
        )
        if payoff.num_tokens:
            self._trials.drafted()
            return paid_plan(payoff)
        return trial if self._trials.due() else NO_PLAN

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        if rounds.count:
            band, each = _band(num_sequences), seconds / rounds.count
            known = self._round_seconds.setdefault(band, each)
            self._round_seconds[band] = known + (each - known) / 8

    def learn(self, plan: DraftPlan, greedy: bool, stood: int, tested: int) -> None:
        self._shares[greedy].learn(stood, tested)


def _band(num_sequences: int) -> int:
    return (num_sequences - 1).bit_length()
