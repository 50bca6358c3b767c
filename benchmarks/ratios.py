"""Medians of ratios of paired samples, with 95 % bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from offramp.bench.results.cells import Interval
from offramp.bench.results.intervals import Values, rate_ratio


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios and its 95 % interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval) -> Self:
        """Under the names that results have."""
        return cls(interval.value, interval.low, interval.high)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Round i gives numerators[i] / denominators[i]; both were measured within that round, so its noise is shared.

    The interval resamples rounds: with 5 rounds it is hardly narrower than their range.
    """
    assert len(numerators) == len(denominators) > 0
    found = rate_ratio(_seconds(numerators), _seconds(denominators), [None])
    assert found is not None, "a ratio that is no number"
    return Ratio.of(found)


def _seconds(values: Sequence[float]) -> Values:
    """Of one thing a round. [rounds, 1, 2]"""
    return np.array([[(value, 1.0)] for value in values], np.float64)
