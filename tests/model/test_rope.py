"""Rotary frequencies against the published formulas, written out once more by hand, pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from offramp.errors import CorruptModelError
from offramp.model.config import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.rope import attention_factor, default_yarn_attention, inverse_frequencies, rope_tables

LLAMA3 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)
YARN = YarnScaling(factor=4.0, original_context=2048, attention_factor=default_yarn_attention(4.0))


def rope(scaling: RopeScaling | None = None, base: float = 10000.0, dim: int = 64) -> RopeConfig:
    return RopeConfig(base=base, rotary_dim=dim, scaling=scaling)


def plain(base: float, dim: int) -> list[float]:
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


def llama3_by_hand(frequency: float, s: Llama3Scaling) -> float:
    wavelength = 2 * math.pi / frequency
    if wavelength < s.original_context / s.high_freq_factor:
        return frequency
    if wavelength > s.original_context / s.low_freq_factor:
        return frequency / s.factor
    smooth = (s.original_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    return (1 - smooth) * frequency / s.factor + smooth * frequency


def yarn_by_hand(base: float, dim: int, s: YarnScaling) -> list[float]:
    def dimension(turns: float) -> float:
        return dim * math.log(s.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(s.beta_fast), dimension(s.beta_slow)
    if s.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    result = []
    for i, frequency in enumerate(plain(base, dim)):
        ramp = min(1.0, max(0.0, (i - low) / (high - low)))
        result.append(frequency / s.factor * ramp + frequency * (1 - ramp))
    return result


def test_default_frequencies() -> None:
    np.testing.assert_allclose(inverse_frequencies(rope()), plain(10000.0, 64), rtol=1e-14)
    assert inverse_frequencies(rope(dim=4)).tolist() == [1.0, 0.01]


def test_linear_divides_every_frequency() -> None:
    expected = np.array(plain(10000.0, 64)) / 2.5
    np.testing.assert_allclose(inverse_frequencies(rope(LinearScaling(factor=2.5))), expected, rtol=1e-14)


def test_divisors_divide_their_own_frequency() -> None:
    scaling = FrequencyDivisors(divisors=(1.0, 2.0, 8.0))
    expected = np.array(plain(100.0, 6)) / [1, 2, 8]
    np.testing.assert_allclose(inverse_frequencies(rope(scaling, 100.0, 6)), expected, rtol=1e-14)


@pytest.mark.parametrize("context", [32, 8192])
def test_llama3_keeps_short_and_divides_long_wavelengths(context: int) -> None:
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=context)
    expected = [llama3_by_hand(f, scaling) for f in plain(500000.0, 64)]
    np.testing.assert_allclose(inverse_frequencies(rope(scaling, 500000.0)), expected, rtol=1e-12)


def test_llama3_spot_values() -> None:
    """Llama 3.1's own settings: pair 0 kept, pair 63 divided by 8, pair 30 within the blend."""
    ratio = inverse_frequencies(rope(LLAMA3, 500000.0, 128)) / plain(500000.0, 128)
    assert ratio[0] == 1.0
    assert ratio[63] == pytest.approx(1 / 8)
    wavelength = 2 * math.pi * 500000.0 ** (60 / 128)
    assert 8192 / 4 < wavelength < 8192
    assert ratio[30] == pytest.approx((1 - (8192 / wavelength - 1) / 3) / 8 + (8192 / wavelength - 1) / 3)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("dim", [16, 64])
def test_yarn_frequencies(dim: int, truncate: bool) -> None:
    scaling = YarnScaling(
        factor=4.0, original_context=2048, attention_factor=1.0, beta_fast=16.0, beta_slow=2.0, truncate=truncate
    )
    np.testing.assert_allclose(
        inverse_frequencies(rope(scaling, 10000.0, dim)), yarn_by_hand(10000.0, dim, scaling), rtol=1e-12
    )


def test_yarn_ramp_without_width_is_a_step() -> None:
    scaling = YarnScaling(
        factor=4.0, original_context=2048, attention_factor=1.0, beta_fast=8.0, beta_slow=8.0, truncate=False
    )
    ratio = inverse_frequencies(rope(scaling)) / plain(10000.0, 64)
    turns = np.array(plain(10000.0, 64)) * 2048 / (2 * math.pi)
    np.testing.assert_allclose(ratio, np.where(turns > 8.0, 1.0, 0.25), rtol=1e-12)


def test_yarn_attention_factor_scales_the_tables_before_rounding() -> None:
    config = rope(YARN)
    assert attention_factor(config) == pytest.approx(0.1 * math.log(4.0) + 1.0)
    cos, sin = rope_tables(config, 5, 6)
    angles = 5.0 * inverse_frequencies(config)
    assert (cos[0] == (np.cos(angles) * attention_factor(config)).astype(np.float32)).all()
    assert (sin[0] == (np.sin(angles) * attention_factor(config)).astype(np.float32)).all()
    assert attention_factor(rope(LLAMA3)) == 1.0


def test_default_yarn_attention_is_one_without_extension() -> None:
    assert default_yarn_attention(1.0) == 1.0
    assert default_yarn_attention(8.0, 0.5) == pytest.approx(0.05 * math.log(8.0) + 1.0)


def test_tables_do_not_depend_on_the_range() -> None:
    whole = rope_tables(rope(LLAMA3), 0, 300)
    part = rope_tables(rope(LLAMA3), 97, 131)
    for a, b in zip(whole, part, strict=True):
        assert a.dtype == np.float32
        assert a.shape == (300, 32)
        assert (a[97:131] == b).all()


EXTREMES = (-1.0, 0.0, 1e-320, 1.5e-45, 1e-30, 1.0, 32.0, 1e30, 3.4e38, 1e308, math.inf, math.nan)
ONE = [{"factor": x} for x in EXTREMES]
TWO = [(x, y) for x in EXTREMES for y in EXTREMES]
SETTINGS: list[tuple[Any, dict[str, float]]] = [
    *((LinearScaling(factor=1.0), change) for change in ONE),
    *((LLAMA3, change) for change in ONE),
    *((YARN, change) for change in ONE),
    *((YARN, {"attention_factor": x}) for x in EXTREMES),
    *((YARN, {"beta_fast": x, "beta_slow": y}) for x, y in TWO),
    *((replace(YARN, truncate=False), {"beta_fast": x, "beta_slow": y}) for x, y in TWO),
    *((LLAMA3, {"low_freq_factor": x, "high_freq_factor": y}) for x, y in TWO),
]


@pytest.mark.parametrize("base", [1.0 + 2.0**-52, 10000.0, 1e308])
def test_extreme_settings_are_refused_or_give_finite_tables(base: float) -> None:
    num_refused = 0
    for scaling, changes in SETTINGS:
        try:
            changed = replace(scaling, **changes)
        except CorruptModelError:
            num_refused += 1
            continue
        assert all(np.isfinite(table).all() for table in rope_tables(rope(changed, base, dim=8), 0, 4)), changed
    assert 100 < num_refused < len(SETTINGS) - 100


@pytest.mark.parametrize(
    "make",
    [
        lambda: rope(dim=7),
        lambda: rope(dim=0),
        lambda: rope(base=1.0),
        lambda: rope(base=math.nan),
        lambda: rope(LinearScaling(factor=0.0)),
        lambda: rope(LinearScaling(factor=math.inf)),
        lambda: rope(FrequencyDivisors(divisors=(1.0,))),
        lambda: FrequencyDivisors(divisors=(1.0, -1.0)),
        lambda: Llama3Scaling(factor=8.0, low_freq_factor=4.0, high_freq_factor=4.0, original_context=32),
        lambda: YarnScaling(factor=2.0, original_context=0, attention_factor=1.0),
    ],
)
def test_impossible_settings_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(CorruptModelError):
        make()
