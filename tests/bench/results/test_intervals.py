"""Figures computed by hand, and intervals that contain the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.bench.results.cells import Interval
from offramp.bench.results.intervals import mean, mean_change, median, rate, rate_ratio

SAME = ["a", "a"]


def runs(*rounds: list[tuple[float, float]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(rounds, np.float64)


def test_a_rate_is_the_median_of_the_rounds() -> None:
    told = rate(runs([(1, 10), (1, 30)], [(4, 10), (4, 30)], [(2, 10), (2, 30)]), SAME)
    assert told is not None
    assert told.value == 10.0  # 20, 5 and 10 tokens a second
    assert told.low == 2.5  # the slowest round, and the first item both times
    assert told.high == 30.0


def test_a_ratio_pairs_rounds_and_items() -> None:
    plain = runs([(1, 10), (2, 10)], [(10, 10), (20, 10)])
    fast = plain / [2, 1]
    assert rate_ratio(plain, fast, SAME) == Interval(2.0, 2.0, 2.0)  # noise that is shared is no noise


def test_of_equal_tokens_a_ratio_of_rates_is_one_of_seconds() -> None:
    told = rate_ratio(runs([(3, 7), (5, 7)]), runs([(1, 7), (1, 7)]), SAME)
    assert told is not None
    assert (told.value, told.low, told.high) == pytest.approx((4.0, 3.0, 5.0))


def test_other_tokens_count_as_a_rate() -> None:
    told = rate_ratio(runs([(1, 10), (1, 10)]), runs([(1, 5), (1, 5)]), SAME)
    assert told == Interval(0.5, 0.5, 0.5)


def test_items_are_drawn_within_their_tasks() -> None:
    values = runs([(1, 10), (1, 10), (1, 30), (1, 30)])
    assert rate(values, ["a", "a", "b", "b"]) == Interval(20.0, 20.0, 20.0)
    told = rate(values, ["a", "b", "a", "b"])
    assert told is not None
    assert told.low < 20.0 < told.high


def test_tasks_of_one_item_each_are_drawn_from_all() -> None:
    told = rate(runs([(1, 10), (1, 30)]), ["a", "b"])
    assert told == Interval(20.0, 10.0, 30.0)


def test_nothing_decoded() -> None:
    assert rate(runs([(0, 0), (0, 0)]), SAME) is None
    assert rate_ratio(runs([(0, 0), (0, 0)]), runs([(1, 1), (1, 1)]), SAME) is None
    some = rate(runs([(0, 0), (2, 4)]), SAME)  # draws of the first item alone say nothing
    assert some == Interval(2.0, 2.0, 2.0)


def test_median_of_all_requests() -> None:
    told = median(np.array([[1.0, 2.0, 9.0], [1.0, 3.0, 9.0]]), ["a"] * 3)
    assert told.value == 2.5
    assert told.low == 1.0
    assert told.high == 9.0


def test_means_of_items() -> None:
    before, after = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.5, 1.0, 1.0, 0.5])
    assert mean(before, ["a"] * 4).value == 0.5
    change = mean_change(before, after, ["a"] * 4)
    assert change.value == 0.25
    assert 0.0 <= change.low < 0.25 < change.high <= 0.5
    assert mean_change(before, before, ["a"] * 4) == Interval(0.0, 0.0, 0.0)


def test_the_same_figures_each_time() -> None:
    values = np.random.default_rng(1).exponential(1.0, (3, 8, 2))
    assert rate(values, ["a"] * 8) == rate(values, ["a"] * 8)


TRIALS, NOMINAL = 200, 0.95


def contained(seed: int, make: str) -> int:
    """How many of the intervals contain the truth; of few items a percentile bootstrap does so a bit too rarely."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(TRIALS):
        tokens = rng.integers(20, 128, 25).astype(float)
        speed = rng.lognormal(0.3, 0.2, 25)  # of an item's tokens; the truth weighs them by plain seconds
        noise = rng.lognormal(0.0, 0.03, (2, 5, 25))
        plain = np.stack([tokens * noise[0], np.broadcast_to(tokens, (5, 25))], axis=-1)
        other = np.stack([tokens / speed * noise[1], np.broadcast_to(tokens, (5, 25))], axis=-1)
        if make == "ratio":
            told, truth = rate_ratio(plain, other, ["a"] * 25), 1 / np.exp(-0.3 + 0.02)
        elif make == "median":
            told, truth = median(speed[None] * noise[0][:1], ["a"] * 25), float(np.exp(0.3))
        else:
            told, truth = mean(speed, ["a"] * 25), float(np.exp(0.32))
        assert told is not None
        hits += told.low <= truth <= told.high
    return hits


@pytest.mark.parametrize("make", ["ratio", "median", "mean"])
def test_intervals_contain_the_truth(make: str) -> None:
    hits = contained(5, make)
    assert 0.87 * TRIALS <= hits < TRIALS, hits  # the upper bound: an interval of everything would be no interval
