"""Drawn tokens follow the target law and are independent from place to place; broken noise is noticed.

The kernel draws here because it is quick; test_native_draw.py shows that numpy draws the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import SamplingParams
from offramp.native.sampling import NativeDraw
from offramp.sample import elementary
from offramp.sample.race import NoiseKey, race, uniforms
from tests.sample.naive import kept_ids
from tests.sample.statistics import bound, chi_square, fits

LOGITS = np.array([0.0, 1.5, -1.0, 0.3, 2.0, -3.0, 0.3, 1.0], dtype=np.float32)
NUM_DRAWS = 20_000
DRAW = NativeDraw()

Tokens = NDArray[np.int64]
KeyOf = Callable[[int], NoiseKey]


def law_of(params: SamplingParams) -> NDArray[np.float64]:
    kept = kept_ids(LOGITS, params.temperature, params.top_k, params.top_p, params.min_p)
    odds = np.exp(LOGITS.astype(np.float64) / params.temperature)
    odds[[i for i in range(len(LOGITS)) if i not in kept]] = 0.0
    law: NDArray[np.float64] = odds / odds.sum()
    return law


def draws(params: SamplingParams, key_of: KeyOf, count: int = NUM_DRAWS) -> Tokens:
    return np.array([DRAW(LOGITS, params, key_of(i)) for i in range(count)])


def by_position(i: int) -> NoiseKey:
    return NoiseKey(seed=11, choice=0, position=i)


def by_seed(i: int) -> NoiseKey:
    return NoiseKey(seed=i << 20, choice=3, position=5)


def by_choice(i: int) -> NoiseKey:
    return NoiseKey(seed=2**64 - 1, choice=i, position=0)


@pytest.mark.parametrize("key_of", [by_position, by_seed, by_choice])
def test_law_over_positions_seeds_and_choices(key_of: KeyOf) -> None:
    params = SamplingParams(temperature=1.3)
    assert fits(draws(params, key_of), law_of(params))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.6),
        SamplingParams(top_k=3),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=2.0, top_k=6, top_p=0.9, min_p=0.1),
    ],
    ids=["temperature", "top_k", "top_p", "min_p", "all"],
)
def test_filtered_laws(params: SamplingParams) -> None:
    assert fits(draws(params, by_position), law_of(params))
    unlike = SamplingParams(temperature=params.temperature * 1.15, top_k=params.top_k)
    assert not fits(draws(unlike, by_position), law_of(params))


def test_numpy_race_has_the_same_law() -> None:
    tokens = np.array([race(LOGITS, 1.0, by_position(i)) for i in range(2_000)])
    assert fits(tokens, law_of(SamplingParams()))


def broken_race(noise_of: Callable[[NoiseKey, Tokens], NDArray[np.float64]]) -> Tokens:
    ids = np.arange(len(LOGITS))
    return np.array([int(np.argmax(LOGITS + noise_of(by_position(i), ids))) for i in range(2_000)])


def gumbel(u: NDArray[np.float64]) -> NDArray[np.float64]:
    return -elementary.log(-elementary.log(u))


def test_negative_controls_of_the_noise() -> None:
    law = law_of(SamplingParams())
    fixed = NoiseKey(seed=11, choice=0, position=0)
    assert fits(broken_race(lambda key, ids: gumbel(uniforms(key, ids))), law)
    assert not fits(broken_race(lambda key, ids: gumbel(uniforms(key, ids * 0))), law), "noise shared by tokens"
    assert not fits(broken_race(lambda key, ids: gumbel(uniforms(key, ids // 2))), law), "noise shared by pairs"
    assert not fits(broken_race(lambda key, ids: gumbel(uniforms(fixed, ids))), law), "noise shared by positions"
    assert not fits(broken_race(lambda key, ids: -elementary.log(uniforms(key, ids))), law), "one logarithm missing"


def independent(first: Tokens, second: Tokens) -> bool:
    """Chi-square of the pairs against the product of their own frequencies."""
    size = len(LOGITS)
    table = np.bincount(first * size + second, minlength=size * size).reshape(size, size)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(first)
    enough = expected >= 5
    return chi_square(table[enough], expected[enough]) <= bound(int(enough.sum()) - 2 * size + 1)


def test_neighbouring_positions_choices_and_seeds_are_independent() -> None:
    params = SamplingParams()
    here = draws(params, by_position)
    assert independent(here[:-1], here[1:])
    assert independent(here, draws(params, lambda i: NoiseKey(seed=11, choice=1, position=i)))
    assert independent(here, draws(params, lambda i: NoiseKey(seed=12, choice=0, position=i)))
    assert not independent(here, here), "the test itself must see dependence"
    warmer = draws(SamplingParams(temperature=1.5), by_position)
    assert not independent(here, warmer), "shared noise couples different laws"


def test_the_same_place_draws_the_same_token_and_no_other_place_does() -> None:
    params = SamplingParams(temperature=5.0)
    here = draws(params, by_position, 200)
    assert list(here) == list(draws(params, by_position, 200))
    shifted = draws(params, lambda i: by_position(i + 1), 200)
    assert list(here) != list(shifted)
    assert list(here[1:]) == list(shifted[:-1])


def test_noise_of_a_token_does_not_depend_on_the_others() -> None:
    """A token that wins the whole race wins it among any subset: what makes filtered drafts agree."""
    random = np.random.default_rng(4)
    row = random.normal(0, 2, 50).astype(np.float32)
    for i in range(100):
        winner = race(row, 1.0, by_position(i))
        subset = np.where(random.random(50) < 0.5, row, np.float32(-np.inf))
        subset[winner] = row[winner]
        assert race(subset, 1.0, by_position(i)) == winner
