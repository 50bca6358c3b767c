"""Ratios of speed and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.bench.tune.compare import LEAST_PAIRS, Pair, Timed, gain, ratio, student


def pairs(ratios: list[float], noise: float = 0.0, seed: int = 0) -> list[Pair]:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 2, len(ratios)) * np.exp(noise * rng.standard_normal((2, len(ratios))))
    return [(Timed(a, 100), Timed(b / speed, 100)) for a, b, speed in zip(*seconds, ratios, strict=True)]


def test_a_ratio_is_of_all_tokens_in_all_seconds() -> None:
    assert ratio([(Timed(1, 10), Timed(1, 20)), (Timed(3, 10), Timed(1, 20))]) == (40 / 2) / (20 / 4)


@pytest.mark.parametrize(
    ("freedom", "tail", "table"),
    [(4, 0.025, 2.776), (6, 0.025, 2.447), (10, 0.025, 2.228), (4, 0.005, 4.604), (10, 0.005, 3.169)],
)
def test_students_quantiles_are_those_of_the_table(freedom: int, tail: float, table: float) -> None:
    assert student(freedom, tail) == pytest.approx(table, rel=0.015)


def test_an_interval_holds_the_ratio_and_narrows_with_more_turns() -> None:
    few, many = gain(pairs([1.2] * 7, noise=0.05)), gain(pairs([1.2] * 28, noise=0.05))
    assert few.low < 1.2 < few.high
    assert many.low < many.ratio < many.high
    assert many.high - many.low < few.high - few.low
    assert (few.turns, many.turns) == (7, 28)


def test_together_with_others_it_is_wider() -> None:
    alone, among = gain(pairs([1.1] * 10, noise=0.05)), gain(pairs([1.1] * 10, noise=0.05), among=3)
    assert among.low < alone.low
    assert alone.high < among.high
    assert alone.ratio == among.ratio


def test_it_misses_the_ratio_no_more_often_than_it_says() -> None:
    missed = 0
    for seed in range(200):
        found = gain(pairs([1.0] * 7, noise=0.05, seed=seed))
        missed += not found.low <= 1 <= found.high
    assert 1 <= missed <= 21, "the 99.9 % quantile of 200 intervals of 95 %"


def test_a_few_pairs_have_none() -> None:
    with pytest.raises(AssertionError):
        gain(pairs([1.1] * (LEAST_PAIRS - 1)))
