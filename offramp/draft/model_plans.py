"""How many tokens a draft model drafts, or a side layer: what acceptance and costs say pays most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from offramp.core import CostModel, StepLoad
from offramp.draft.beliefs import DecayedShare
from offramp.draft.paid_plans import PaidPlans, Prospect
from offramp.draft.payoff import best_payoff
from offramp.draft.plans import DraftPlan, Rounds

ENOUGH, WINDOW = 3, 9
"""Steps seen before what rounds take is known; it is the median of the latest, for a first one runs in cold caches."""
SURPRISES = 32
"""Latest steps that what drafting costs besides is the median of: a step's time varies more than that is."""


class PaidLength(PaidPlans):
    """The length with the most expected tokens a second; 0 where none beats plain decoding by `least_gain`.

    The target's steps are predicted by its cost model; what a round of drafting takes is what rounds took, by the
    number of sequences (1, 2, 3 to 4, ...). A number not seen yet is tried with short drafts.
    """

    def __init__(self, costs: CostModel, num_layers: int, max_len: int, *, least_gain: float = 0.0) -> None:
        super().__init__(costs, num_layers, max_len, [()])
        self._least_gain = least_gain
        self._took: dict[int, deque[float]] = {}  # seconds of a round, by band
        self._nodes = DecayedShare(1.0, 1.0)  # of drafts, by round: some bring none, some a leaf as well
        self._besides: dict[int, deque[float]] = {}  # seconds of a step that nothing else accounts for, by band

    def _knows(self, num_sequences: int) -> bool:
        return len(self._took.get(_band(num_sequences), ())) >= ENOUGH

    def _weigh(self, rates: Sequence[float], num_sequences: int, load: StepLoad) -> Prospect:
        share, plain = num_sequences * self._nodes.stood / self._nodes.tested, self._predictions.step(load, 0)
        payoff = best_payoff(
            num_sequences=num_sequences,
            rate=rates[0],
            most=self._max_len,
            round_seconds=median(self._took[_band(num_sequences)]),
            verify=lambda count: self._verify(num_sequences, load, round(share * count)) if count else plain,
            num_beside=max(0, load.num_head_rows - num_sequences),
            least_gain=self._least_gain,
        )
        return Prospect(payoff, ())

    def _timed(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        self._took.setdefault(_band(num_sequences), deque(maxlen=WINDOW)).append(seconds / rounds.count)
        self._nodes.learn(rounds.nodes, rounds.rows)

    def _surprised(self, num_sequences: int, seconds: float) -> None:
        window = self._besides.setdefault(_band(num_sequences), deque([0.0] * ENOUGH, maxlen=SURPRISES))
        window.append(seconds)

    def _drafting_seconds(self, num_sequences: int, load: StepLoad, rounds: Rounds) -> float:
        verifying = self._verify(num_sequences, load, rounds.nodes) - self._predictions.step(load, 0)
        return rounds.count * median(self._took[_band(num_sequences)]) + verifying

    def _verify(self, num_sequences: int, load: StepLoad, num_nodes: int) -> float:
        """A step in which so many are drafted for."""
        besides = median(self._besides.get(_band(num_sequences), (0.0,)))
        return self._predictions.step(load, num_nodes) + max(0.0, besides)


def _band(num_sequences: int) -> int:
    return (num_sequences - 1).bit_length()
