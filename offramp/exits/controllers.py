"""Thresholds that hold a target: a rate of exits, a mean depth, or the length of a queue.

What: one threshold for all exit points, moved a little after each token (or each step, for the queue) against the error
and kept on a logit scale, since scores crowd near 1.
When it helps: when the compute is fixed and quality may follow: a budget for depth, or answers shortened in a rush.
Cost: less than a microsecond a row.
Exactness: lossy and without any promise. Adaptive: tokens depend on what ran before, so for mode `unchecked` only.
Source: Robbins and Monro (1951) for rate and depth; a proportional-integral controller for the queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from offramp.exits.measures import Scores
from offramp.exits.thresholds import NEVER
from offramp.params import check_int, check_number, refused

GAIN = 0.05
"""Of rate and depth: how far one token moves the logit at the largest error, 1."""
LOWEST, HIGHEST = -9.0, 14.0
"""Bounds of the logit; at the lower all rows leave, at the upper none."""
START = math.log(0.9 / 0.1)


class _Dial:
    """A threshold as a logit within bounds."""

    def __init__(self) -> None:
        self._logit = START

    @property
    def threshold(self) -> float:
        if self._logit >= HIGHEST:
            return NEVER
        return 0.0 if self._logit <= LOWEST else 1 / (1 + math.exp(-self._logit))

    def move(self, by: float) -> None:
        self.set(self._logit + by)

    def set(self, logit: float) -> None:
        self._logit = min(HIGHEST, max(LOWEST, logit))


class _Adaptive:
    """What the controllers have in common: one threshold everywhere, no labels."""

    def __init__(self) -> None:
        self._dial = _Dial()

    @property
    def adaptive(self) -> bool:
        return True

    @property
    def wants_labels(self) -> bool:
        return False

    def value(self, layer: int, output: int) -> float:
        return self._dial.threshold

    def observe(self, layer: int, scores: Scores, agreed: NDArray[np.bool_]) -> None:
        """Labels tell nothing about the target."""


class HoldRate(_Adaptive):
    """Holds the share of tokens that leave at any of `layers`, of those asked about."""

    def __init__(self, rate: float, layers: tuple[int, ...], *, gain: float = GAIN) -> None:
        super().__init__()
        check_number("rate", rate, 0.0, 1.0)
        check_number("gain", gain, 0.0, 1.0, open_low=True)
        assert layers, "no exit point, nothing to hold"
        self._rate = rate
        self._last = max(layers)
        self._gain = gain

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        num_left = int(np.count_nonzero(left))
        num_full = len(left) - num_left if layer == self._last else 0  # what stays here runs all layers
        self._dial.move(self._gain * (num_left * (1 - self._rate) - num_full * self._rate))


class HoldDepth(_Adaptive):
    """Holds the mean number of layers that tokens run, of those asked about."""

    def __init__(self, depth: float, layers: tuple[int, ...], num_layers: int, *, gain: float = GAIN) -> None:
        super().__init__()
        assert layers, "no exit point, nothing to hold"
        check_int("num_layers", num_layers, max(layers) + 1)
        check_number("depth", depth, min(layers), num_layers)
        check_number("gain", gain, 0.0, 1.0, open_low=True)
        self._depth = depth
        self._last = max(layers)
        self._num_layers = num_layers
        self._scale = gain / (num_layers - min(layers))

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        num_left = int(np.count_nonzero(left))
        num_full = len(left) - num_left if layer == self._last else 0
        error = num_left * (self._depth - layer) + num_full * (self._depth - self._num_layers)
        self._dial.move(self._scale * error)


class HoldQueue(_Adaptive):
    """Holds the number of requests that wait: the longer the queue, the lower the threshold.

    `length` tells how many wait; it is asked once a step, at the first exit point.
    """

    def __init__(
        self,
        target: float,
        layers: tuple[int, ...],
        length: Callable[[], int],
        *,
        proportional: float = 0.2,
        integral: float = 0.005,
    ) -> None:
        super().__init__()
        assert layers, "no exit point, nothing to hold"
        check_number("target", target, 0.0, 1e6)
        for name, value in (("proportional", proportional), ("integral", integral)):
            check_number(name, value, 0.0, 10.0)
        if proportional == integral == 0:
            raise refused("proportional", proportional, "more than 0, or an integral gain")
        self._target = target
        self._first = min(layers)
        self._length = length
        self._proportional = proportional
        self._integral = integral
        self._drift = START  # where the threshold's logit rests when the queue is on target

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        if layer != self._first:
            return
        error = self._length() - self._target
        self._drift = min(HIGHEST, max(LOWEST, self._drift - self._integral * error))
        self._dial.set(self._drift - self._proportional * error)
