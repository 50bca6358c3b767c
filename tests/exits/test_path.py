"""Paths through threshold space: they start safe, gain at each point, and find what is best in small cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.path import REACH, PathPoint, TuningTokens, threshold_path
from offramp.exits.thresholds import NEVER


def tokens(
    scores: np.ndarray, agreed: np.ndarray, *, length: int = 10, saved: object = (8.0, 4.0), asked: object = (1.0, 1.0)
) -> TuningTokens:
    count, exits = scores.shape
    costs = (np.array(each, dtype=np.float64)[:exits] for each in (saved, asked))
    return TuningTokens(scores.astype(np.float32), agreed, np.arange(count) // length, *costs)


def informative(seed: int, count: int = 2000, *, skill: float = 1.0) -> TuningTokens:
    rng = np.random.default_rng(seed)
    scores = rng.beta(4, 1, size=(count, 2))
    return tokens(scores, rng.random((count, 2)) < scores**skill)


def outcome(data: TuningTokens, thresholds: tuple[float, ...]) -> tuple[float, float]:
    """Loss and gain, token by token."""
    loss = gain = 0.0
    num_prompts, lengths = len(set(data.prompts.tolist())), np.bincount(data.prompts)
    for row, prompt in enumerate(data.prompts):
        for column, threshold in enumerate(thresholds):
            if threshold > 1:
                continue
            known = not np.isnan(data.scores[row, column])
            gain -= data.asked[column] / len(data.prompts) if known else 0.0
            if known and float(data.scores[row, column]) >= threshold:
                gain += data.saved[column] / len(data.prompts)
                loss += (not data.agreed[row, column]) / lengths[prompt] / num_prompts
                break
    return loss, gain


def test_points_say_what_their_thresholds_do() -> None:
    data = informative(0, 300)
    path = threshold_path(data, 0.3)
    assert len(path) > 3
    for point in path:
        assert (point.loss, point.gain) == pytest.approx(outcome(data, point.thresholds))


def test_a_path_starts_safe_and_gains_at_each_point() -> None:
    path = threshold_path(informative(1), 0.1, max_points=10)
    assert 4 <= len(path) <= 10
    assert path[0].loss <= 0.02
    assert path[0].gain > 0
    assert all(before.gain < after.gain for before, after in itertools.pairwise(path))
    assert 0.1 < path[-1].loss <= REACH * 0.1
    steps = [after.loss - before.loss for before, after in itertools.pairwise(path)]
    assert max(steps) < 0.05, "no leap over the risk"


def test_prompts_count_alike_however_long() -> None:
    """A long prompt that is always wrong and a short one that is always right lose one half, not 99 %."""
    data = TuningTokens(
        np.full((100, 1), 0.9, dtype=np.float32),
        np.array([[False]] * 99 + [[True]]),
        np.array([0] * 99 + [1]),
        np.array([5.0]),
        np.array([1.0]),
    )
    [point] = threshold_path(data, 0.5)
    assert point.loss == pytest.approx(0.5)
    assert point.gain == pytest.approx(4.0)


def best_gain(data: TuningTokens, most: float) -> float:
    """Over all pairs of thresholds among the scores."""
    levels = [[*np.unique(data.scores[:, column]).astype(float), NEVER] for column in range(2)]
    outcomes = [outcome(data, pair) for pair in itertools.product(*levels)]
    return max(gain for loss, gain in outcomes if loss <= most)


@pytest.mark.parametrize("seed", range(4))
def test_it_comes_close_to_the_best_pair_of_thresholds(seed: int) -> None:
    data = informative(seed, 30, skill=0.4)
    path = threshold_path(data, 0.2, max_points=40)
    reached = [point for point in path if point.loss <= 0.2]
    best = best_gain(data, reached[-1].loss)
    assert reached[-1].gain >= 0.85 * best > 0


def test_an_exit_point_that_does_not_pay_stays_shut() -> None:
    rng = np.random.default_rng(3)
    scores = rng.beta(4, 1, size=(500, 2))
    agreed = np.stack([np.zeros(500, dtype=bool), np.ones(500, dtype=bool)], axis=1)
    path = threshold_path(tokens(scores, agreed), 0.05)
    assert {point.thresholds[0] for point in path} == {NEVER}
    assert path[-1] == PathPoint((NEVER, path[-1].thresholds[1]), 0.0, pytest.approx(3.0))
    dear = tokens(scores, np.ones_like(agreed), saved=(8.0, 4.0), asked=(9.0, 5.0))
    assert threshold_path(dear, 0.05) == []


def test_scores_that_a_predictor_kept_away_neither_leave_nor_cost() -> None:
    data = informative(4, 400)
    data.scores[::2, 0] = np.nan
    path = threshold_path(data, 0.2)
    for point in path:
        assert (point.loss, point.gain) == pytest.approx(outcome(data, point.thresholds))
    data.scores[:] = np.nan
    assert threshold_path(data, 0.2) == []


def test_no_tokens_no_path() -> None:
    assert threshold_path(tokens(np.zeros((0, 2)), np.zeros((0, 2), dtype=bool)), 0.1) == []
    with pytest.raises(InvalidRequestError, match="risk="):
        threshold_path(informative(0, 20), 1.0)
