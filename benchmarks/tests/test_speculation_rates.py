"""Ratios of tokens a second over prompts and rounds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.speculation.rates import Runs, speed_ratio
from offramp.bench.results import intervals


def runs(seconds: list[list[float]], tokens: list[list[float]]) -> Runs:
    return np.stack([np.array(seconds), np.array(tokens)], axis=-1)


def test_seconds_and_tokens_are_summed_before_they_are_divided() -> None:
    """A mean of ratios would be 2.5 here, and seconds without tokens 1.6."""
    plain, other = runs([[8.0, 8.0]], [[8, 8]]), runs([[2.0, 8.0]], [[8, 4]])
    assert speed_ratio(plain, other, [[0, 1]]).median == pytest.approx((16 / 16) / (10 / 12))


def test_noise_shared_by_a_round_cancels() -> None:
    noise = np.array([1.0, 3.0, 1.5])[:, None] * np.array([1.0, 2.0])
    tokens = np.full((3, 2), 10.0)
    plain, other = np.stack([2 * noise, tokens], axis=-1), np.stack([noise, tokens], axis=-1)
    ratio = speed_ratio(plain, other, [[0], [1]])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_only_the_named_prompts_count() -> None:
    plain, other = runs([[1.0, 9.0, 1.0]], [[1, 1, 1]]), runs([[1.0, 1.0, 2.0]], [[1, 1, 1]])
    assert speed_ratio(plain, other, [[2]]).median == 0.5


def test_the_interval_knows_of_prompts_within_their_groups() -> None:
    """Groups that differ from each other, each uniform: drawing within them can't change the ratio."""
    plain, other = runs([[1.0, 1.0, 4.0, 4.0]], [[1, 1, 1, 1]]), runs([[1.0, 1.0, 1.0, 1.0]], [[1, 1, 1, 1]])
    within = speed_ratio(plain, other, [[0, 1], [2, 3]])
    assert (within.low, within.high) == (2.5, 2.5)
    across = speed_ratio(plain, other, [[0, 1, 2, 3]])
    assert across.low < 2.0 < 3.0 < across.high


def test_the_interval_knows_of_rounds() -> None:
    plain, other = runs([[1.0], [2.0], [3.0]], [[1], [1], [1]]), runs([[1.0], [1.0], [1.0]], [[1], [1], [1]])
    ratio = speed_ratio(plain, other, [[0]])
    assert (ratio.low, ratio.median, ratio.high) == (1.0, 2.0, 3.0)


def test_the_interval_covers_what_other_prompts_give_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 choices of 40 prompts, 3 rounds each. Half of the interval must fail."""
    monkeypatch.setattr(intervals, "DRAWS", 300)
    draw = np.random.default_rng(3)
    truth, covered, narrow = np.exp(0.3 + 0.3**2 / 2), 0, 0
    ones = np.ones((3, 40))
    for _ in range(200):
        gains = np.broadcast_to(draw.lognormal(0.3, 0.3, 40), (3, 40)) * draw.lognormal(0, 0.02, (3, 1))
        ratio = speed_ratio(np.stack([gains, ones], axis=-1), np.stack([ones, ones], axis=-1), [list(range(40))])
        covered += ratio.low <= truth <= ratio.high
        half = (ratio.median - ratio.low) / 2, (ratio.high - ratio.median) / 2
        narrow += ratio.median - half[0] <= truth <= ratio.median + half[1]
    assert covered >= 174  # 99.9 % binomial bound of 93 %
    assert narrow < 174


def test_unlike_runs_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        speed_ratio(runs([[1.0]], [[1]]), runs([[1.0], [1.0]], [[1], [1]]), [[0]])
