"""Scores of hidden states: their values, and that they are a row's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offramp.exits.predictors import LinearPredictor, MlpPredictor, Predictor
from offramp.exits.similarity import Similarity

HIDDEN = 48


def make(width: int, seed: int = 0, hidden: int = HIDDEN) -> MlpPredictor:
    shapes = (width, hidden), (width,), (1, width), (1,)
    rng = np.random.default_rng(seed)
    return MlpPredictor(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def linear(hidden: int = HIDDEN) -> LinearPredictor:
    whole = make(1, hidden=hidden)
    return LinearPredictor(whole.w1, whole.b1)


PREDICTORS = [linear(), make(8), Similarity()]
EVERY = pytest.mark.parametrize("predictor", PREDICTORS, ids=["linear", "mlp", "similarity"])


def states(count: int, seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, HIDDEN)) * 7).astype(np.float32)


def test_values() -> None:
    h, m = states(5), make(8)
    unit = h / np.sqrt((h.astype(np.float64) ** 2).mean(axis=1, keepdims=True))
    inner = np.maximum(unit @ m.w1.T + m.b1, 0)
    assert m.scores(h, None) == pytest.approx(1 / (1 + np.exp(-(inner @ m.w2.T + m.b2)))[:, 0], abs=1e-5)
    line = linear()
    assert line.scores(h, None) == pytest.approx(1 / (1 + np.exp(-(unit @ line.w1.T + line.b1)))[:, 0], abs=1e-5)
    assert not line.wants_previous
    assert Similarity().wants_previous


def test_similarity_is_the_cosine() -> None:
    now, before = states(6), states(6, seed=4) + states(6)
    lengths = np.linalg.norm(now, axis=1) * np.linalg.norm(before, axis=1)
    cosine = (now * before).sum(axis=1) / lengths
    assert cosine.min() > 0
    assert Similarity().scores(now, before) == pytest.approx(cosine, abs=1e-6)
    assert Similarity().scores(now, now * 3) == pytest.approx(np.ones(6), abs=1e-6)
    assert Similarity().scores(now, -now).tolist() == [0.0] * 6
    assert Similarity().scores(now, now * 0).tolist() == [0.0] * 6
    assert Similarity().scores(now * np.float32(1e30), now * np.float32(1e-30)) == pytest.approx(np.ones(6), abs=1e-6)


@EVERY
def test_a_score_does_not_depend_on_the_rows_beside_it(predictor: Predictor) -> None:
    for count in (2, 5, 16, 17):
        now, before = states(count, seed=count), states(count, seed=count + 50)
        alone = [predictor.scores(now[r : r + 1].copy(), before[r : r + 1].copy())[0] for r in range(count)]
        assert np.array_equal(predictor.scores(now, before), np.array(alone)), count


@EVERY
@given(arrays(np.float32, (3, HIDDEN), elements=st.floats(width=32)))
@settings(max_examples=80, deadline=None)
def test_any_states_score_within_bounds_or_not_at_all(predictor: Predictor, hidden: np.ndarray) -> None:
    scores = predictor.scores(hidden, np.ones_like(hidden))
    assert (np.isnan(scores) | ((scores >= 0) & (scores <= 1))).all()
    assert np.isnan(scores[~np.isfinite(hidden).all(axis=1)]).all()


def test_weights_of_other_shapes_are_a_mistake() -> None:
    m = make(8)
    with pytest.raises(AssertionError):
        MlpPredictor(m.w1, m.b1, m.w2[:, :4], m.b2)
    with pytest.raises(AssertionError):
        LinearPredictor(m.w1, m.b1)
