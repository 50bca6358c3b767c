"""The kernel, on both paths, draws numpy's token: over sizes, ties, masks and every combination of parameters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import SamplingParams
from offramp.native._native import draw_token
from offramp.native.sampling import NativeDraw
from offramp.sample.processors import weights
from offramp.sample.race import NoiseKey
from offramp.sample.sampler import draw_numpy
from tests.sample.naive import adjusted_row

AVX2, PORTABLE = NativeDraw(), NativeDraw(portable=True)
TEMPERATURES = (1.0, 0.7, 2.0, 0.1, 1e-4, 100.0, 1e6, 1e-310)
TOP_KS = (0, 1, 2, 5, 50, 1000, 9_999_999)
TOP_PS = (1.0, 0.95, 0.5, 0.1, 1e-4, 0.999, 1 - 1e-16)
MIN_PS = (0.0, 0.05, 0.5, 1.0, 1e-9, 5e-324)
SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 100, 257, 1000, 1025)
COMBINATIONS = list(itertools.product(TEMPERATURES, TOP_KS, TOP_PS, MIN_PS))


def key_from(random: np.random.Generator) -> NoiseKey:
    seed = int(random.integers(0, 2**64, dtype=np.uint64))
    return NoiseKey(seed=seed, choice=int(random.integers(128)), position=int(random.integers(100_000)))


def check(random: np.random.Generator, vocab: int, params: SamplingParams) -> None:
    row, key = adjusted_row(random, vocab), key_from(random)
    expected = draw_numpy(row, params, key)
    assert (AVX2(row, params, key), PORTABLE(row, params, key)) == (expected, expected), (vocab, params, key)


def params_of(values: tuple[float, int, float, float]) -> SamplingParams:
    temperature, top_k, top_p, min_p = values
    return SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)


def test_every_combination_of_parameters() -> None:
    random = np.random.default_rng(0)
    for values in COMBINATIONS:
        check(random, int(random.choice(SIZES)), params_of(values))


@pytest.mark.parametrize("vocab", [32_003, 49_152, 262_144])
def test_real_vocabularies(vocab: int) -> None:
    random = np.random.default_rng(vocab)
    for values in [(1.0, 0, 1.0, 0.0), (0.8, 40, 0.95, 0.05), (1.0, 0, 0.9, 0.0), (0.7, 5000, 1.0, 1e-3)]:
        check(random, vocab, params_of(values))


def test_a_row_of_equal_logits() -> None:
    row = np.zeros(5000, dtype=np.float32)
    for position, values in enumerate(
        [(1.0, 0, 1.0, 0.0), (1.0, 777, 1.0, 0.0), (1.0, 777, 0.5, 1.0), (1.0, 0, 0.3, 0)]
    ):
        key = NoiseKey(seed=9, choice=0, position=position)
        params = params_of(values)
        assert AVX2(row, params, key) == PORTABLE(row, params, key) == draw_numpy(row, params, key)


def test_tokens_crowded_around_the_edge_of_min_p() -> None:
    row = np.concatenate([np.linspace(-3.1, -2.9, 3000), [0.0]]).astype(np.float32)
    params = SamplingParams(min_p=float(np.exp(-3.0)))
    for position in range(150):
        key = NoiseKey(seed=2, choice=0, position=position)
        assert AVX2(row, params, key) == PORTABLE(row, params, key) == draw_numpy(row, params, key)


@pytest.mark.slow
def test_many_random_draws() -> None:
    random = np.random.default_rng(7)
    for _ in range(20_000):
        vocab = int(random.choice([*SIZES, 2049, 5003]))
        check(random, vocab, params_of(COMBINATIONS[random.integers(len(COMBINATIONS))]))


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("place", [0, 50, 95, 99])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_kernel_refuses_rows_that_it_was_never_promised(bad: float, place: int, portable: bool) -> None:
    row = np.linspace(-5, 5, 100, dtype=np.float32)
    row[place] = bad
    for top_k, top_p, min_p in [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.5, 0.1)]:
        with pytest.raises(ValueError, match="finite"):
            draw_token(row, 1.0, top_k, top_p, min_p, 1, 0, 0, portable)
    with pytest.raises(ValueError, match="finite"):
        draw_token(np.full(100, -np.inf, dtype=np.float32), 1.0, 0, 1.0, 0.0, 1, 0, 0, portable)


def peaked_row(random: np.random.Generator, vocab: int) -> NDArray[np.float32]:
    """As a language model's: few tokens hold nearly all the weight, many others a little together."""
    row = random.normal(-14.0, 2.0, vocab).astype(np.float32)
    row[random.integers(0, vocab, 30)] = random.uniform(-6, 0, 30)
    return row


@pytest.mark.parametrize("offset", [0.0, 1e-16, -1e-16, 1e-9, -1e-9, 1e-6, -1e-6, 1e-3])
def test_a_cut_next_to_the_winners_edge(offset: float) -> None:
    """The coarse sum of the unlikely tokens must not decide whether the token that wins the race is still in it."""
    random = np.random.default_rng(5)
    tried = 0
    while tried < 60:
        row, key = peaked_row(random, 5000), key_from(random)
        order = np.argsort(-row, kind="stable")
        rank = int(np.flatnonzero(order == draw_numpy(row, SamplingParams(), key))[0])
        if rank == 0:
            continue
        tried += 1
        cumulative = np.cumsum(weights(row, 1.0)[order])
        edge = float(cumulative[rank - 1]) / float(cumulative[-1])
        params = SamplingParams(top_p=min(edge * (1 + offset), 1.0))
        expected = draw_numpy(row, params, key)
        assert (AVX2(row, params, key), PORTABLE(row, params, key)) == (expected, expected), params.top_p
