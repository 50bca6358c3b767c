"""Raw log-probabilities: a log-softmax, ranks and the best tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.errors import NumericError
from offramp.sample.logprobs import raw_logprobs


def test_hand_made_row() -> None:
    row = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
    found = raw_logprobs(row, 2, 2)
    assert found.token_id == 2
    assert found.rank == 3
    assert math.isclose(found.logprob, math.log(0.2), rel_tol=1e-6)
    assert [i for i, _ in found.top] == [1, 3]
    assert math.isclose(found.top[0][1], math.log(0.4), rel_tol=1e-6)


def test_ties_rank_by_id_and_k_may_exceed_the_vocabulary() -> None:
    row = np.array([1, 2, 1, 2, 1], dtype=np.float32)
    assert [i for i, _ in raw_logprobs(row, 0, 3).top] == [1, 3, 0]
    assert [i for i, _ in raw_logprobs(row, 0, 99).top] == [1, 3, 0, 2, 4]
    assert [raw_logprobs(row, i, 0).rank for i in range(5)] == [3, 1, 4, 2, 5]
    assert raw_logprobs(row, 0, 0).top == []


def test_probabilities_sum_to_one_and_large_logits_do_not_overflow() -> None:
    row = (np.random.default_rng(0).normal(0, 3, 500) + 3e4).astype(np.float32)
    top = raw_logprobs(row, 0, 500).top
    assert math.isclose(sum(math.exp(logprob) for _, logprob in top), 1.0, rel_tol=1e-6)
    assert [i for i, _ in top] == list(np.argsort(-row, kind="stable"))


def test_the_chosen_token_agrees_with_its_entry_in_top() -> None:
    """B118: the value belongs to the row, never a constant."""
    row = np.random.default_rng(1).normal(0, 1, 50).astype(np.float32)
    for rank, (token, logprob) in enumerate(raw_logprobs(row, 0, 50).top, start=1):
        found = raw_logprobs(row, token, 0)
        assert (found.logprob, found.rank) == (logprob, rank)
        assert found.logprob < 0.0


@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1000, 5003])
def test_the_best_are_those_of_a_full_sort(vocab: int) -> None:
    row = np.round(np.random.default_rng(vocab).normal(0, 3, vocab)).astype(np.float32)
    order = [int(i) for i in np.argsort(-row, kind="stable")]
    for k in (1, 5, 20, 128):
        assert [i for i, _ in raw_logprobs(row, 0, k).top] == order[:k]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_broken_rows_raise(bad: float) -> None:
    with pytest.raises(NumericError):
        raw_logprobs(np.array([1, bad, 2], dtype=np.float32), 0, 1)


@pytest.mark.parametrize("least", [-np.finfo(np.float32).max, -np.inf])
def test_rows_from_end_to_end_of_the_numbers_are_fine(least: float) -> None:
    """(Warnings are errors here.)"""
    row = np.array([np.finfo(np.float32).max, least, 0], dtype=np.float32)
    assert raw_logprobs(row, 0, 1).logprob == 0.0
    assert raw_logprobs(row, 1, 1).rank == 3
    assert math.isclose(raw_logprobs(np.array([least, 1, 1], dtype=np.float32), 1, 0).logprob, -math.log(2))
