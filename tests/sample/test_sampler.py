"""Rows and jobs: what applies in which order, what is refused, and that rows don't harm each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, NumericError, OfframpError
from offramp.native.sampling import sample_rows
from offramp.sample.sampler import RowJob, adjusted, sample_rows_numpy

Sampler = Callable[[NDArray[np.float32], Sequence[RowJob]], list[int | OfframpError]]

GREEDY = SamplingParams(temperature=0.0)
SAMPLERS = pytest.mark.parametrize("sample", [sample_rows, sample_rows_numpy], ids=["native", "numpy"])


def row_of(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def greedy_token(row: NDArray[np.float32], job: RowJob) -> int | OfframpError:
    return sample_rows_numpy(row[None], [job])[0]


@SAMPLERS
def test_greedy_takes_the_lowest_of_equal_ids(sample: Sampler) -> None:
    assert sample(row_of(1, 3, 3, 2)[None], [RowJob(params=GREEDY, seed=0)]) == [1]


def test_plain_rows_are_not_copied_and_others_leave_the_logits_alone() -> None:
    row = row_of(1, 2, 3)
    before = row.copy()
    assert adjusted(row, RowJob(params=SamplingParams(), seed=0)) is row
    job = RowJob(params=SamplingParams(logit_bias={0: 5}, repetition_penalty=2.0), seed=0, output_ids=[2])
    assert list(adjusted(row, job)) == [6, 2, 1.5]
    assert np.array_equal(row, before)


def test_bias_comes_before_penalties_and_they_before_masks() -> None:
    params = SamplingParams(
        temperature=0.0, logit_bias={0: 6.0}, repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5
    )
    job = RowJob(params=params, seed=0, prompt_ids=[1], output_ids=[0, 0], position=2)
    # token 0: (2 + 6) / 2 - 1 - 2 * 0.5; token 1, in the prompt only: 3 / 2
    assert list(adjusted(row_of(2, 3, -1), job)) == [2, 1.5, -1]
    masked = RowJob(params=params, seed=0, prompt_ids=[1], output_ids=[0], allowed=np.array([False, True, True]))
    assert list(adjusted(row_of(2, 3, -1), masked)) == [-np.inf, 1.5, -1]


def test_presence_and_frequency_ignore_the_prompt() -> None:
    params = SamplingParams(temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0)
    assert list(adjusted(row_of(1, 1), RowJob(params=params, seed=0, prompt_ids=[0, 0, 1]))) == [1, 1]


def test_min_tokens_masks_eos_and_stop_ids_until_they_are_there() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2, stop_token_ids=(1, 1000))
    row = row_of(9, 8, 7)
    tokens = [
        greedy_token(row, RowJob(params=params, seed=0, position=i, eos_token_ids=frozenset({0}))) for i in range(4)
    ]
    assert tokens == [2, 2, 0, 0]


@SAMPLERS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_left_to_draw_is_the_requests_error(sample: Sampler, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, min_tokens=1)
    job = RowJob(params=params, seed=0, allowed=np.array([True, False]), eos_token_ids=frozenset({0}))
    (error,) = sample(row_of(1, 2)[None], [job])
    assert isinstance(error, InvalidRequestError)
    assert "min_tokens" in error.hint


@SAMPLERS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_does_not_harm_its_neighbours(sample: Sampler, bad: float, temperature: float) -> None:
    logits = np.random.default_rng(0).normal(0, 1, (3, 100)).astype(np.float32)
    jobs = [RowJob(params=SamplingParams(temperature=temperature), seed=i) for i in range(3)]
    clean = sample(logits, jobs)
    for place in (0, 50, 99):
        broken = logits.copy()
        broken[1, place] = bad
        found = sample(broken, jobs)
        assert isinstance(found[1], NumericError)
        assert str(place) in found[1].message
        assert [found[0], found[2]] == [clean[0], clean[2]]


@SAMPLERS
def test_a_nan_under_a_mask_is_still_reported(sample: Sampler) -> None:
    job = RowJob(params=SamplingParams(), seed=0, allowed=np.array([True, False]))
    assert isinstance(sample(row_of(1, np.nan)[None], [job])[0], NumericError)


@SAMPLERS
def test_a_row_of_minus_infinity_is_the_models_error(sample: Sampler) -> None:
    assert isinstance(sample(row_of(-np.inf, -np.inf)[None], [RowJob(params=GREEDY, seed=0)])[0], NumericError)


@SAMPLERS
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1e-4),
        SamplingParams(top_p=1e-4),
        SamplingParams(temperature=1e-4, top_p=1e-4),
        SamplingParams(temperature=5e-324),
        SamplingParams(temperature=5e-324, top_p=0.5, min_p=0.5, top_k=3),
        SamplingParams(top_k=1),
        SamplingParams(min_p=1.0),
    ],
)
def test_b18_tiny_temperature_or_top_p_equals_greedy(sample: Sampler, params: SamplingParams) -> None:
    logits = np.random.default_rng(3).normal(0, 3, (4, 1000)).astype(np.float32)
    jobs = [RowJob(params=params, seed=seed) for seed in range(4)]
    assert sample(logits, jobs) == [int(i) for i in logits.argmax(axis=1)]


@SAMPLERS
def test_b95_a_top_k_beyond_the_vocabulary_is_off(sample: Sampler) -> None:
    logits = np.random.default_rng(3).normal(0, 1, (1, 300)).astype(np.float32)
    tokens = [
        sample(logits, [RowJob(params=SamplingParams(top_k=k), seed=5)])[0] for k in (0, -1, 300, 9_999_999, 2**70)
    ]
    assert len(set(tokens)) == 1


@SAMPLERS
def test_masked_tokens_are_never_drawn(sample: Sampler) -> None:
    allowed = np.zeros(64, dtype=np.bool_)
    allowed[[3, 40]] = True
    logits = np.zeros((200, 64), dtype=np.float32)
    jobs = [RowJob(params=SamplingParams(), seed=1, position=i, allowed=allowed) for i in range(200)]
    assert set(sample(logits, jobs)) == {3, 40}
