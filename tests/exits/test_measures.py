"""Scores of logits: their values, that they are a row's own, and that nonsense never is sure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offramp.errors import InvalidRequestError
from offramp.exits.measures import MEASURES, Measure, entropy, margin, measure_of, top_probability

EVERY = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))


def probabilities(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_values_are_those_of_the_softmax() -> None:
    logits = (np.random.default_rng(0).normal(size=(9, 700)) * 4).astype(np.float32)
    p = np.sort(probabilities(logits), axis=1)
    assert top_probability(logits) == pytest.approx(p[:, -1], rel=1e-5)
    assert margin(logits) == pytest.approx(p[:, -1] - p[:, -2], abs=1e-6)
    assert entropy(logits) == pytest.approx(1 + (p * np.log(p)).sum(axis=1) / np.log(700), abs=1e-5)


def test_certain_undecided_and_tied_rows() -> None:
    logits = np.array([[0, 200, 0, 0], [3, 3, 3, 3], [9, 9, -90, -90]], dtype=np.float32)
    assert top_probability(logits).tolist() == [1.0, 0.25, 0.5]
    assert margin(logits).tolist() == [1.0, 0.0, 0.0]
    assert entropy(logits).tolist() == pytest.approx([1.0, 0.0, 0.5], abs=1e-6)


@EVERY
def test_a_score_does_not_depend_on_the_rows_beside_it(measure: Measure) -> None:
    rng = np.random.default_rng(1)
    for width in (1, 2, 7, 130, 4096, 5000, 8195):
        for count in (2, 5, 16, 17):
            logits = (rng.normal(size=(count, width)) * 5).astype(np.float32)
            alone = np.concatenate([measure(logits[row : row + 1].copy()) for row in range(count)])
            assert np.array_equal(measure(logits), alone), (width, count)
            assert np.array_equal(measure(logits[::-1]), alone[::-1]), (width, count)


@EVERY
def test_logits_are_left_as_they_are(measure: Measure) -> None:
    logits = np.random.default_rng(2).normal(size=(3, 50)).astype(np.float32)
    before = logits.copy()
    logits.flags.writeable = False
    measure(logits)
    assert np.array_equal(logits, before)


@EVERY
@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(width=32)))
@settings(max_examples=150, deadline=None)
def test_any_logits_score_within_bounds_or_not_at_all(measure: Measure, logits: np.ndarray) -> None:
    scores = measure(logits)
    largest = logits.max(axis=1)
    assert np.array_equal(np.isnan(scores), ~np.isfinite(largest))
    known = scores[np.isfinite(largest)]
    assert ((known >= 0) & (known <= 1)).all()


@EVERY
def test_ruled_out_tokens_count_as_impossible(measure: Measure) -> None:
    logits = np.array([[1.0, -np.inf, 1.5, -np.inf]], dtype=np.float32)
    low = np.where(np.isinf(logits), np.float32(-200), logits)
    assert measure(logits) == measure(low)


def test_names() -> None:
    assert measure_of("margin") is margin
    with pytest.raises(InvalidRequestError, match="measure='certainty'") as caught:
        measure_of("certainty")
    assert "entropy, margin, top_probability" in caught.value.hint
