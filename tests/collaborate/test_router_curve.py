"""APGR and CPT against closed forms, and their intervals on data whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.collaborate.router.curve import Estimate, curve_of, estimate_apgr, estimate_cpt
from offramp.errors import InvalidRequestError

HARD = 0.25
"""Share of prompts that only the big model gets right."""
GAINS = np.array([1.0] * 25 + [0.0] * 75)


def test_a_constant_score_is_a_coin() -> None:
    curve = curve_of(np.full(100, 0.3), GAINS)
    assert curve.apgr == pytest.approx(0.5, abs=1e-12)
    for part in (0.2, 0.5, 0.8, 1.0):
        assert curve.cpt(part) == pytest.approx(part)
    estimate = estimate_apgr(np.full(100, 0.3), GAINS, draws=50)
    assert (estimate.low, estimate.high) == pytest.approx((0.5, 0.5))


def test_a_perfect_score_needs_the_hard_prompts_alone() -> None:
    curve = curve_of(GAINS / 2, GAINS)
    assert curve.apgr == pytest.approx(1 - HARD / 2)
    for part in (0.2, 0.5, 0.8, 1.0):
        assert curve.cpt(part) == pytest.approx(HARD * part)
    assert curve.at(0.1) == pytest.approx(0.4)


def test_the_worst_score_calls_them_last() -> None:
    curve = curve_of(-GAINS, GAINS)
    assert curve.apgr == pytest.approx(HARD / 2)
    assert curve.cpt(0.5) == pytest.approx(1 - HARD / 2)


def test_prompts_that_the_big_model_spoils_count_against_it() -> None:
    """Ten wins first, then ten losses among 20 easy ones: up to 1, then down and up again."""
    gains = np.array([1.0] * 10 + [-1.0] * 5 + [0.0] * 15)
    scores = np.concatenate([np.full(10, 0.9), np.full(5, 0.1), np.full(15, 0.5)])
    curve = curve_of(scores, gains)
    assert curve.recovered.tolist() == [0.0, 2.0, 2.0, 1.0]
    assert curve.shares == pytest.approx([0, 1 / 3, 5 / 6, 1])
    assert curve.apgr == pytest.approx(1 / 3 + 1 + 0.25)
    assert curve.cpt(1.0) == pytest.approx(1 / 6)


def test_a_shuffle_of_the_prompts_changes_nothing(rng: np.random.Generator) -> None:
    scores, order = rng.random(100).round(1), rng.permutation(100)
    before, after = curve_of(scores, GAINS), curve_of(scores[order], GAINS[order])
    assert before.apgr == pytest.approx(after.apgr)
    assert before.cpt(0.5) == pytest.approx(after.cpt(0.5))


@pytest.mark.parametrize("gains", [np.zeros(50), np.ones(50), -GAINS, np.zeros(0)])
def test_data_of_one_class_or_without_a_gap_is_refused(gains: np.ndarray) -> None:
    with pytest.raises(InvalidRequestError):
        curve_of(np.zeros(len(gains)), gains)


@pytest.mark.parametrize("part", [0.0, -0.1, 1.1, math.nan])
def test_impossible_parts_are_refused(part: float) -> None:
    with pytest.raises(InvalidRequestError, match="recovered"):
        curve_of(GAINS, GAINS).cpt(part)


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Even scores s; a gain of 1 with chance s. Big calls of share x recover 1 - (1 - x)**2: APGR 2/3."""
    scores = rng.random(count)
    return scores, (rng.random(count) < scores).astype(np.float64)


def missed(estimate: Estimate, truth: float) -> bool:
    return estimate.excludes(truth)


def test_intervals_hold_the_truth(rng: np.random.Generator) -> None:
    """0.95 of them: at most 13 of 100 miss, at the 99.9 % quantile."""
    figures = [(estimate_apgr(*data, draws=200), estimate_cpt(*data, 0.75, draws=200)) for data in _samples(rng, 100)]
    assert sum(missed(apgr, 2 / 3) for apgr, _ in figures) <= 13
    assert sum(missed(cpt, 0.5) for _, cpt in figures) <= 13


def test_a_coins_interval_would_not(rng: np.random.Generator) -> None:
    """The negative control."""
    samples = ((rng.permutation(scores), gains) for scores, gains in _samples(rng, 50))
    assert sum(missed(estimate_apgr(*data, draws=200), 2 / 3) for data in samples) > 13


def _samples(rng: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [draw(rng, 300) for _ in range(count)]


def test_intervals_are_repeatable_and_narrow_with_more_prompts(rng: np.random.Generator) -> None:
    few, many = draw(rng, 100), draw(rng, 3000)
    one, other = estimate_apgr(*few, draws=300), estimate_apgr(*few, draws=300)
    assert one == other
    wide, narrow = (each.high - each.low for each in (one, estimate_apgr(*many, draws=300)))  # type: ignore[operator]
    assert narrow < wide / 3


def test_a_gap_that_may_be_none_has_no_interval() -> None:
    gains = np.array([1.0] * 6 + [-1.0] * 5 + [0.0] * 30)
    estimate = estimate_apgr(np.linspace(0, 0.9, 41), gains, draws=200)
    assert (estimate.low, estimate.high) == (None, None)
    assert not estimate.excludes(0.5)
