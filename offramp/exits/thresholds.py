"""Where a score is enough.

What: one threshold for all exit points, one for each, or either falling with the output position as in CALM.
When it helps: per exit, since shallow heads are wrong at scores at which deep ones are right; falling, since early
errors spread to all that follows.
Cost: none.
Exactness: frozen ones depend on exit point and output position alone, so tokens depend on the row alone.
Source: CALM (arXiv 2207.07061) for the falling ones.

A row leaves when its score is at least the threshold: 0 lets all leave, above 1 none. Adaptive thresholds (`beta.py`,
`controllers.py`) learn while they run, so tokens depend on what ran before; they belong to mode `unchecked`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.exits.measures import Scores
from offramp.params import check_int, check_number

NEVER = 2.0
"""A threshold that no score reaches."""

TEMPERATURE = 4.0
"""How fast CALM's thresholds fall, unless said otherwise."""


class Threshold(Protocol):
    """Says which score is enough at an exit point for an output token."""

    @property
    def adaptive(self) -> bool:
        """It learns while it runs: tokens then depend on what ran before."""
        ...

    @property
    def wants_labels(self) -> bool:
        """`observe` is told."""
        ...

    def value(self, layer: int, output: int) -> float:
        """The least score that leaves at this exit point; `output` counts a sequence's output tokens from 0."""
        ...

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        """What became of the rows that arrived at an exit point, both [rows]; NaN where no head was asked."""
        ...

    def observe(self, layer: int, scores: Scores, agreed: NDArray[np.bool_]) -> None:
        """Of tokens that left, whether full depth agreed; both [tokens]."""
        ...


class FrozenThreshold:
    """What all thresholds have in common that never change."""

    @property
    def adaptive(self) -> bool:
        return False

    @property
    def wants_labels(self) -> bool:
        return False

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        """Nothing is learned."""

    def observe(self, layer: int, scores: Scores, agreed: NDArray[np.bool_]) -> None:
        """Nothing is learned."""


class Fixed(FrozenThreshold):
    """The same everywhere."""

    def __init__(self, threshold: float) -> None:
        self._threshold = checked_threshold(threshold)

    def value(self, layer: int, output: int) -> float:
        return self._threshold


class PerExit(FrozenThreshold):
    """One for each exit point; at others nothing leaves."""

    def __init__(self, thresholds: Mapping[int, float]) -> None:
        self._thresholds = {layer: checked_threshold(threshold) for layer, threshold in thresholds.items()}

    def value(self, layer: int, output: int) -> float:
        return self._thresholds.get(layer, NEVER)


class Decaying(FrozenThreshold):
    """CALM's: clip(0.9 t + 0.1 t exp(-temperature output / horizon), 0, 1) of another threshold t <= 1.

    `horizon` is the most output tokens a request may have. A threshold above 1 stays: what never leaves, never leaves.
    """

    def __init__(self, threshold: Threshold, horizon: int, temperature: float = TEMPERATURE) -> None:
        assert not threshold.adaptive, "what falls must be frozen"
        check_int("horizon", horizon, 1)
        check_number("temperature", temperature, 0.0, 1e6)
        self._threshold = threshold
        self._horizon = horizon
        self._temperature = temperature

    def value(self, layer: int, output: int) -> float:
        t = self._threshold.value(layer, output)
        if t > 1.0:
            return t
        return min(1.0, max(0.0, 0.9 * t + 0.1 * t * math.exp(-self._temperature * output / self._horizon)))


def values(threshold: Threshold, layer: int, outputs: Ids) -> list[float]:
    """The threshold of each row, [rows]. In f64, so that one set at a score compares equal to it."""
    return [threshold.value(layer, output) for output in outputs.tolist()]


def checked_threshold(value: float) -> float:
    """Refuses what is no threshold, NaN above all."""
    check_number("threshold", value, 0.0, NEVER)
    return float(value)
