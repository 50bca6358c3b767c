"""How many tokens a draft model drafts, or a side layer: what acceptance and costs say pays most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from offramp.core import CostModel, StepLoad
from offramp.draft.paid_plans import PaidPlans, Prospect
from offramp.draft.payoff import best_payoff
from offramp.draft.plans import DraftPlan, Rounds

ENOUGH, WINDOW = 3, 9
"""Steps seen before what rounds take is known; it is the median of the latest, for a first one runs in cold caches."""


class PaidLength(PaidPlans):
    """The length with the most expected tokens a second; 0 where none beats plain decoding by `least_gain`.

    The target's steps are predicted by its cost model; what a round of drafting takes is what rounds took, by the
    number of sequences (1, 2, 3 to 4, ...). A number not seen yet is tried with short drafts.
    """

    def __init__(self, costs: CostModel, num_layers: int, max_len: int, *, least_gain: float = 0.0) -> None:
        super().__init__(costs, num_layers, max_len, [()])
        self._least_gain = least_gain
        self._took: dict[int, deque[float]] = {}  # seconds of a round, by band

    def _knows(self, num_sequences: int) -> bool:
        return len(self._took.get(_band(num_sequences), ())) >= ENOUGH

    def _weigh(self, rates: Sequence[float], num_sequences: int, load: StepLoad) -> Prospect:
        payoff = best_payoff(
            num_sequences=num_sequences,
            rate=rates[0],
            most=self._max_len,
            round_seconds=median(self._took[_band(num_sequences)]),
            verify=lambda count: self._predictions.step(load, num_sequences * count),
            num_beside=max(0, load.num_head_rows - num_sequences),
            least_gain=self._least_gain,
        )
        return Prospect(payoff, ())

    def _timed(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        self._took.setdefault(_band(num_sequences), deque(maxlen=WINDOW)).append(seconds / rounds.count)


def _band(num_sequences: int) -> int:
    return (num_sequences - 1).bit_length()
