"""Each step between logits and draw, against hand-made numbers or the naive reference."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.sample import processors
from tests.sample.naive import adjusted_row, kept_ids

Row = NDArray[np.float32]


def row_of(*values: float) -> Row:
    return np.array(values, dtype=np.float32)


def finite_ids(row: Row) -> list[int]:
    return [int(i) for i in np.flatnonzero(row > -np.inf)]


def test_bias_is_added() -> None:
    row = row_of(1, 2, 3)
    processors.add_bias(row, {0: -100, 2: 0.5})
    assert list(row) == [-99, 2, 3.5]


def test_repetition_divides_positive_and_multiplies_negative_logits_once() -> None:
    row = row_of(4, -4, 0, 8, -np.inf)
    processors.penalize_repetition(row, [0, 1, 2, 0, 0, 4], 2.0)
    assert list(row) == [2, -8, 0, 8, -np.inf]


@pytest.mark.parametrize("penalty", [1e-300, 1e6])
def test_repetition_never_makes_infinities(penalty: float) -> None:
    row = row_of(3e38, -3e38, 1)
    processors.penalize_repetition(row, [0, 1, 2], penalty)
    assert np.isfinite(row).all()


def test_presence_counts_once_and_frequency_each_time() -> None:
    row = row_of(0, 0, 0, 0)
    processors.penalize_frequency(row, [1, 2, 2, 2], presence=0.5, frequency=1.0)
    assert list(row) == [0, -1.5, -3.5, 0]


def test_no_output_means_no_penalty() -> None:
    row = row_of(1, 2)
    processors.penalize_frequency(row, [], presence=2.0, frequency=2.0)
    assert list(row) == [1, 2]


def test_masks() -> None:
    row = row_of(1, 2, 3, 4)
    processors.forbid(row, {1, 99})
    processors.restrict(row, np.array([True, True, True, False]))
    assert finite_ids(row) == [0, 2]


@pytest.mark.parametrize("k", [0, -1, 4, 9_999_999])
def test_top_k_off(k: int) -> None:
    row = row_of(3, 1, 2, 0)
    assert processors.keep_top_k(row, k) is row


def test_top_k_keeps_exactly_k_and_the_lowest_of_equal_ids() -> None:
    row = row_of(5, 7, 5, 7, 5, 1)
    assert finite_ids(processors.keep_top_k(row, 1)) == [1]
    assert finite_ids(processors.keep_top_k(row, 3)) == [0, 1, 3]
    assert finite_ids(processors.keep_top_k(row, 4)) == [0, 1, 2, 3]


def test_top_p_of_equal_tokens_keeps_the_lowest_ids() -> None:
    row = np.zeros(10, dtype=np.float32)
    assert finite_ids(processors.keep_top_p(row, 1.0, 0.3)) == [0, 1, 2]
    assert finite_ids(processors.keep_top_p(row, 1.0, 0.31)) == [0, 1, 2, 3]


def test_top_p_keeps_at_least_one_token_and_off_keeps_all() -> None:
    row = row_of(0, 9, 1)
    assert finite_ids(processors.keep_top_p(row, 1.0, 1e-4)) == [1]
    assert processors.keep_top_p(row, 1.0, 1.0) is row
    assert finite_ids(processors.keep_top_p(row, 1.0, 1 - 1e-16)) == [0, 1, 2]


def test_top_p_looks_at_probabilities_after_temperature() -> None:
    row = np.log(row_of(0.6, 0.3, 0.1))
    assert finite_ids(processors.keep_top_p(row, 1.0, 0.59)) == [0]
    assert finite_ids(processors.keep_top_p(row, 10.0, 0.59)) == [0, 1]


def test_min_p_is_relative_to_the_likeliest() -> None:
    row = np.log(row_of(0.5, 0.26, 0.24))
    assert finite_ids(processors.keep_min_p(row, 1.0, 0.5)) == [0, 1]
    assert finite_ids(processors.keep_min_p(row, 1.0, 1.0)) == [0]
    assert processors.keep_min_p(row, 1.0, 0.0) is row


def test_filters_equal_the_naive_reference() -> None:
    random = np.random.default_rng(1)
    narrowed = 0
    for _ in range(400):
        row = adjusted_row(random, int(random.integers(1, 90)))
        temperature = float(random.choice([1.0, 0.7, 3.0, 0.01]))
        top_k = int(random.choice([0, 1, 3, 20, 1000]))
        top_p = float(random.choice([1.0, 0.95, 0.5, 0.123]))
        min_p = float(random.choice([0.0, 0.05, 0.3]))
        kept = processors.keep_top_k(row, top_k)
        kept = processors.keep_top_p(kept, temperature, top_p)
        kept = processors.keep_min_p(kept, temperature, min_p)
        assert set(finite_ids(kept)) == kept_ids(row, temperature, top_k, top_p, min_p)
        narrowed += len(finite_ids(kept)) not in (1, len(finite_ids(row)))
    assert narrowed > 80  # the cases are not all trivial


def test_the_order_of_top_k_and_top_p_matters_and_is_top_k_first() -> None:
    row = np.log(row_of(0.4, 0.3, 0.2, 0.1))
    # Within the top 2 the first token holds 4/7 of the mass, of all four it holds 0.4.
    assert kept_ids(row, 1.0, 2, 0.5, 0.0) == {0}
    assert finite_ids(processors.keep_top_p(processors.keep_top_k(row, 2), 1.0, 0.5)) == [0]
    assert finite_ids(processors.keep_top_k(processors.keep_top_p(row, 1.0, 0.5), 2)) == [0, 1]
