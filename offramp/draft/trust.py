"""How far a drafter's scores are to be trusted."""

from __future__ import annotations

from math import exp

DECAY = 0.97
"""Of older counts, at each new one."""
TRUST_WEIGHT = 4.0
"""Variance of that many nodes that a correction of scores starts with: what few nodes tell is mostly chance."""
MOST_BIAS = 8.0
"""Of a correction, in log-odds."""


class Trust:
    """How a drafter's scores come true: a shift of their odds, learned so that corrected scores are right on average.

    Sure scores stay nearly sure; multiplied, a long sure chain would be thought certain.
    """

    __slots__ = ("_bias", "_weight", "factor")

    def __init__(self, bias: float = 0.0) -> None:
        self._bias = bias
        self._weight = 0.0
        self.factor = exp(bias)  # of the odds

    @property
    def bias(self) -> float:
        """The shift in log-odds."""
        return self._bias

    def corrected(self, score: float) -> float:
        odds = score * self.factor
        return odds / (odds + 1.0 - score) if odds else 0.0

    def learn(self, stood: bool, score: float) -> None:
        """A node of this score was put to the test: one step of Newton's method on its log-likelihood."""
        chance = self.corrected(score)
        self._weight = DECAY * self._weight + chance * (1.0 - chance)
        bias = self._bias + (stood - chance) / (self._weight + TRUST_WEIGHT)
        self._bias = max(-MOST_BIAS, min(MOST_BIAS, bias))
        self.factor = exp(self._bias)
