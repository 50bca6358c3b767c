"""Paired ratios and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ratios import paired_ratio


def test_noise_shared_by_a_round_cancels() -> None:
    noise = [1.0, 3.0, 1.5, 10.0, 2.0]
    ratio = paired_ratio([2 * value for value in noise], noise)
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    """200 runs of 15 rounds; bootstrap intervals of a median cover a bit less than nominal. Half of it must fail."""
    draw = np.random.default_rng(1)
    covered = narrow = 0
    for _ in range(200):
        ratio = paired_ratio(draw.lognormal(0.3, 0.2, 15).tolist(), [1.0] * 15)
        covered += ratio.low <= np.exp(0.3) <= ratio.high
        half = (ratio.median - ratio.low) / 2, (ratio.high - ratio.median) / 2
        narrow += ratio.median - half[0] <= np.exp(0.3) <= ratio.median + half[1]
    assert covered >= 176  # 99.9 % binomial bound of 94 %
    assert narrow < 176


def test_unpaired_samples_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        paired_ratio([1.0], [1.0, 2.0])
