"""Thresholds: ends, shares, certificates; the promise on fresh data, and that it fails where nothing is tested."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.collaborate.threshold import (
    CertifiedThreshold,
    ThresholdCalibration,
    bounded,
    calls_big,
    certify,
    check_threshold,
    path_of,
    share_at,
)
from offramp.errors import InvalidRequestError

RISK, DELTA = 0.05, 0.1
RUNS, PROMPTS = 200, 400
MOST_VIOLATIONS = 34
"""The 99.9 % quantile of 200 events of chance 0.1."""


def entry(risk: float, share: float) -> CertifiedThreshold:
    return CertifiedThreshold(
        risk=risk, delta=0.05, threshold=0.5, big_share=share, num_prompts=100, mean_loss=0.01, p_value=0.01
    )


def test_b128_thresholds_at_both_ends_call_always_and_never() -> None:
    scores = bounded(np.linspace(-0.5, 1.5, 100))
    assert share_at(scores, 0.0) == 1.0
    assert share_at(scores, 1.0) == 0.0
    assert 0.3 < share_at(scores, 0.5) < 0.7


def test_b128_the_share_never_rises_with_the_threshold(rng: np.random.Generator) -> None:
    scores = bounded(rng.random(100).round(1))
    shares = [share_at(scores, threshold) for threshold in np.linspace(0, 1, 101)]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, math.inf, "0.5", None, True])
def test_b128_other_values_are_refused(threshold: object) -> None:
    with pytest.raises(InvalidRequestError, match="threshold"):
        check_threshold(threshold)


def test_b128_the_share_on_other_prompts_is_told_apart_from_the_calibrations(rng: np.random.Generator) -> None:
    calibration = ThresholdCalibration(scores=np.sort(rng.random(1000)))
    threshold = calibration.for_share(0.5)
    assert calibration.big_share(threshold) == pytest.approx(0.5)
    assert share_at(rng.random(1000) ** 2, threshold) < 0.4


def test_what_is_no_number_asks_for_the_big_model() -> None:
    [score] = bounded(np.array([np.nan]))
    assert calls_big(score, 0.999)
    assert not calls_big(score, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.5, 0.9, 1.0])
def test_a_share_is_met_to_half_a_prompt(share: float, rng: np.random.Generator) -> None:
    calibration = ThresholdCalibration(scores=np.sort(rng.random(301)))
    assert calibration.big_share(calibration.for_share(share)) == pytest.approx(share, abs=0.5 / 301 + 1e-9)


def test_equal_scores_can_not_be_parted() -> None:
    calibration = ThresholdCalibration(scores=np.array([0.2, 0.2, 0.2, 0.7]))
    assert calibration.big_share(calibration.for_share(0.3)) == 0.25
    assert calibration.big_share(calibration.for_share(0.7)) == 1.0
    assert calibration.for_share(0.1) == 1.0


def test_of_two_equally_near_shares_the_cheaper_is_taken() -> None:
    calibration = ThresholdCalibration(scores=np.array([0.1, 0.2, 0.3, 0.4]))
    assert calibration.big_share(calibration.for_share(0.375)) == 0.25


def test_a_share_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="big_share"):
        ThresholdCalibration(scores=np.array([0.5])).for_share(1.5)


def test_a_risk_gets_the_certified_threshold_that_calls_least() -> None:
    calibration = ThresholdCalibration(scores=np.array([0.5]), certified=(entry(0.02, 0.9), entry(0.1, 0.3)))
    assert calibration.for_risk(0.05).risk == 0.02
    assert calibration.for_risk(0.2).risk == 0.1
    with pytest.raises(InvalidRequestError, match=r"risk=0\.01 is not certified"):
        calibration.for_risk(0.01)


def test_the_path_rises_to_never(rng: np.random.Generator) -> None:
    path = path_of(bounded(rng.random(500)))
    assert path == sorted(set(path))
    assert path[-1] == 1.0
    assert len(path) == 20


def population(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Even scores; the little model spoils a prompt of score s with a chance of s/2: threshold t loses t**2/4."""
    scores = rng.random(PROMPTS)
    return scores, (rng.random(PROMPTS) < scores / 2).astype(np.float64)


def true_loss(threshold: float) -> float:
    return threshold**2 / 4


def test_a_certified_loss_holds_on_fresh_data(rng: np.random.Generator) -> None:
    path = path_of(rng.random(1000))
    violations = some = 0
    for _ in range(RUNS):
        found = certify(*population(rng), path, risk=RISK, delta=DELTA)
        some += found is not None
        violations += found is not None and true_loss(found.threshold) > RISK
    assert violations <= MOST_VIOLATIONS
    assert some == RUNS, "a certificate that is never given holds easily"


def test_without_the_test_it_would_not_hold(rng: np.random.Generator) -> None:
    """The negative control: the last threshold whose mean loss is within the risk."""
    path = path_of(rng.random(1000))
    violations = 0
    for _ in range(RUNS):
        scores, losses = population(rng)
        within = [each for each in path if np.where(scores >= each, 0, losses).mean() <= RISK]
        violations += true_loss(within[-1]) > RISK
    assert violations > MOST_VIOLATIONS


def test_a_certificate_says_what_was_measured(rng: np.random.Generator) -> None:
    scores, losses = population(rng)
    found = certify(scores, losses, path_of(scores), risk=0.1, delta=0.05)
    assert found is not None
    assert found.big_share == share_at(scores, found.threshold)
    assert found.mean_loss == pytest.approx(np.where(scores >= found.threshold, 0, losses).mean())
    assert found.p_value <= 0.05


def test_a_hopeless_little_model_is_certified_nothing(rng: np.random.Generator) -> None:
    assert certify(rng.random(400), np.ones(400), path_of(rng.random(400)), risk=0.02, delta=0.05) is None


@pytest.mark.parametrize(("risk", "delta"), [(0.0, 0.05), (1.0, 0.05), (math.nan, 0.05), (0.05, 0.0), (0.05, math.nan)])
def test_impossible_promises_are_refused(risk: float, delta: float) -> None:
    with pytest.raises(InvalidRequestError):
        certify(np.zeros(400), np.zeros(400), [1.0], risk=risk, delta=delta)


def test_too_few_prompts_are_refused_with_how_many_it_takes() -> None:
    with pytest.raises(InvalidRequestError, match="too few") as caught:
        certify(np.zeros(20), np.zeros(20), [1.0], risk=0.05, delta=0.05)
    assert "it takes" in caught.value.hint
