"""Medians of ratios of paired samples, with bootstrap intervals. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios and its 95 % interval."""

    median: float
    low: float
    high: float


def paired_ratio(numerators: list[float], denominators: list[float]) -> Ratio:
    """Round i gives numerators[i] / denominators[i]; both were measured within that round, so its noise is shared.

    The interval resamples rounds (percentile bootstrap, fixed seed): with 5 rounds it is hardly narrower than their
    range.
    """
    assert len(numerators) == len(denominators) > 0
    ratios: NDArray[np.float64] = np.array(numerators) / np.array(denominators)
    draws = np.random.default_rng(0).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[draws], axis=1), [0.025, 0.975])
    return Ratio(float(np.median(ratios)), float(low), float(high))
