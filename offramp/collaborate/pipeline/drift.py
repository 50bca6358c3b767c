"""Does the big model answer as often as it did when thresholds were calibrated? If not, the prompts are others now."""

from __future__ import annotations

import math
from collections import deque

WINDOW = 500
"""Latest requests that count."""
LEAST = 100
"""Fewer say nothing."""
DEVIATIONS = 4.0
"""Standard deviations of a binomial share from which it counts as drift: once in 16,000 looks by chance."""


class ShareWatch:
    """The share of the latest requests that the big model answered. Not for several threads at once."""

    def __init__(self, calibrated: float | None) -> None:
        self.calibrated = calibrated
        self._latest: deque[bool] = deque(maxlen=WINDOW)
        self._told = False

    def note(self, called_big: bool) -> None:
        """One more request."""
        self._latest.append(called_big)

    @property
    def achieved(self) -> float | None:
        """None before the first request."""
        return sum(self._latest) / len(self._latest) if self._latest else None

    @property
    def drifted(self) -> bool:
        """The share is farther from the calibrated one than chance explains."""
        count, achieved = len(self._latest), self.achieved
        if self.calibrated is None or achieved is None or count < LEAST:
            return False
        spread = math.sqrt(max(self.calibrated * (1 - self.calibrated), 1 / WINDOW) / count)
        return abs(achieved - self.calibrated) > DEVIATIONS * spread

    def news(self) -> bool:
        """Whether it has drifted since this was last asked while it had not."""
        before, self._told = self._told, self.drifted
        return self._told and not before
