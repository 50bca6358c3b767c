"""Mixtures of two Beta laws: known ones are found again, thresholds stay within their bounds."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.beta import FEWEST, HIGHEST, LOWEST, WINDOW, BetaLaw, BetaMixture, Mixture, fit_mixture
from offramp.exits.beta import lowest_score as threshold_of

TRUTH = Mixture(BetaLaw(8.0, 2.0), BetaLaw(3.0, 4.0), 0.7)
APART = Mixture(BetaLaw(24.0, 3.0), BetaLaw(4.0, 12.0), 0.6)


def draws(truth: Mixture, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    agreed = rng.random(count) < truth.weight
    scores = np.where(agreed, rng.beta(truth.agree.a, truth.agree.b, count), 0)
    return np.where(agreed, scores, rng.beta(truth.differ.a, truth.differ.b, count)), agreed.astype(np.int8)


def close(found: Mixture, truth: Mixture, shapes: float) -> None:
    assert found.weight == pytest.approx(truth.weight, abs=0.03)
    for law, known in ((found.agree, truth.agree), (found.differ, truth.differ)):
        assert law.mean == pytest.approx(known.mean, abs=0.02)
        assert (law.a, law.b) == pytest.approx((known.a, known.b), rel=shapes)


def test_a_law_has_its_moments_and_density() -> None:
    law = BetaLaw.of_moments(0.3, 0.02)
    assert (law.mean, law.variance) == pytest.approx((0.3, 0.02))
    middle = (np.arange(20_000) + 0.5) / 20_000
    density = np.exp(law.log_density(middle))
    assert density.mean() == pytest.approx(1.0, abs=1e-4)
    assert (density * middle).mean() == pytest.approx(0.3, abs=1e-4)


def test_labelled_scores_give_the_mixture_back() -> None:
    close(fit_mixture(*draws(TRUTH, 6000, seed=0)), TRUTH, shapes=0.12)


def test_unlabelled_scores_give_it_back_where_the_laws_are_apart() -> None:
    scores, labels = draws(APART, 6000, seed=1)
    close(fit_mixture(scores, np.full_like(labels, -1)), APART, shapes=0.2)


def test_labels_of_high_scores_alone_do_not_hide_the_low_ones() -> None:
    """Tokens that stayed have no label; taken for missing, the differing ones would seem rare."""
    scores, labels = draws(APART, 6000, seed=2)
    partly = np.where(scores >= 0.8, labels, -1).astype(np.int8)
    close(fit_mixture(scores, partly), APART, shapes=0.2)
    known = partly >= 0
    assert fit_mixture(scores[known], partly[known]).weight > 0.95


def test_the_threshold_is_where_agreement_gets_likely() -> None:
    grid = np.linspace(0.001, 0.999, 9981)
    exact = grid[np.flatnonzero(TRUTH.chance(grid) <= 0.4)[-1]]
    assert LOWEST < exact < HIGHEST
    assert threshold_of(TRUTH) == pytest.approx(exact, abs=0.003)
    assert threshold_of(fit_mixture(*draws(TRUTH, 6000, seed=3))) == pytest.approx(exact, abs=0.03)
    assert threshold_of(TRUTH, 0.9) > threshold_of(TRUTH, 0.4) > threshold_of(TRUTH, 0.1)


def test_thresholds_stay_within_their_bounds() -> None:
    sure, never = Mixture(TRUTH.agree, TRUTH.differ, 0.9999), Mixture(TRUTH.agree, TRUTH.differ, 0.0001)
    assert (threshold_of(sure), threshold_of(never)) == (LOWEST, HIGHEST) == (0.3, 0.9)


@pytest.mark.parametrize("scores", [[0.0] * 50, [1.0] * 50, [0.5] * 50, [0.0, 1.0] * 25])
@pytest.mark.parametrize("label", [-1, 0, 1])
def test_degenerate_scores_are_no_trouble(scores: list[float], label: int) -> None:
    found = fit_mixture(np.array(scores), np.full(50, label, dtype=np.int8))
    assert np.isfinite(found.chance(np.linspace(0, 1, 11))).all()
    assert LOWEST <= threshold_of(found) <= HIGHEST


def serve(online: BetaMixture, truth: Mixture, count: int, seed: int, layer: int = 6) -> None:
    """Tokens in groups of eight, as a policy tells: decisions at once, labels of those that left later."""
    scores, labels = draws(truth, count, seed)
    for at in range(0, count, 8):
        group = scores[at : at + 8].astype(np.float32)
        left = group >= online.value(layer, 5)
        online.decided(layer, group, left)
        online.observe(layer, group[left], labels[at : at + 8][left] == 1)


def test_online_learning_finds_the_threshold_and_follows_a_drift() -> None:
    online = BetaMixture()
    assert online.adaptive
    assert online.wants_labels
    assert online.value(6, 0) == HIGHEST
    serve(online, APART, 4 * WINDOW, seed=4)
    found = online.value(6, 0)
    assert found == pytest.approx(threshold_of(APART), abs=0.05)
    assert online.value(12, 0) == HIGHEST, "each exit point learns alone"
    worse = Mixture(BetaLaw(30.0, 2.0), BetaLaw(12.0, 4.0), 0.3)
    serve(online, worse, 4 * WINDOW, seed=5)
    assert online.value(6, 0) > found + 0.1


def test_rows_that_stayed_count_without_labels() -> None:
    rng = np.random.default_rng(6)
    sure, stayed = rng.beta(60, 2, 200).astype(np.float32), rng.beta(12, 4, 600).astype(np.float32)
    with_them, without = BetaMixture(), BetaMixture()
    with_them.decided(6, stayed, np.zeros(600, dtype=bool))
    without.decided(6, stayed, np.ones(600, dtype=bool))
    for online in (with_them, without):
        online.observe(6, sure, np.ones(200, dtype=bool))
    assert with_them.value(6, 0) > without.value(6, 0) + 0.1


def test_nothing_is_believed_of_a_few_labels() -> None:
    online = BetaMixture()
    few = np.full(FEWEST - 1, 0.95, dtype=np.float32)
    online.observe(6, few, np.ones(len(few), dtype=bool))
    assert online.value(6, 0) == HIGHEST
    online.observe(6, few, np.ones(len(few), dtype=bool))
    assert online.value(6, 0) < HIGHEST


def test_scores_that_are_none_do_not_count() -> None:
    online = BetaMixture()
    online.decided(6, np.full(2000, np.nan, dtype=np.float32), np.zeros(2000, dtype=bool))
    online.observe(6, np.full(64, 0.95, dtype=np.float32), np.ones(64, dtype=bool))
    assert np.isfinite(online.value(6, 0))
    assert online.value(6, 0) < HIGHEST


def test_impossible_confidence_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="confidence="):
        BetaMixture(1.5)
