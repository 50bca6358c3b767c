"""Rotary frequencies and tables, in float64 and rounded to f32 once. Formulas: those published with each scaling.

pairs = rotary_dim / 2; pair i turns by position * frequency[i].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeConfig,
    YarnScaling,
)

Frequencies = NDArray[np.float64]  # [pairs], radians per position


def inverse_frequencies(rope: RopeConfig) -> Frequencies:
    """Radians per position of each pair, with the scaling applied."""
    plain = rope.base ** -(np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim)
    match rope.scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case FrequencyDivisors() | LongRopeScaling() as scaling:
            return plain / np.array(scaling.divisors, dtype=np.float64)
        case Llama3Scaling() as scaling:
            return plain / llama3_divisors(plain, scaling)
        case YarnScaling() as scaling:
            kept = 1.0 - _yarn_ramp(rope, scaling)
            return plain / scaling.factor * (1.0 - kept) + plain * kept


def llama3_divisors(plain: Frequencies, scaling: Llama3Scaling) -> Frequencies:
    """What each unscaled frequency is divided by, [pairs]; 1 where it is kept."""
    turns = scaling.original_context * plain / (2 * math.pi)  # full turns within the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - blend) / scaling.factor + blend)


def attention_factor(rope: RopeConfig) -> float:
    """What cos and sin are multiplied by: 1 except under yarn and longrope."""
    return rope.scaling.attention_factor if isinstance(rope.scaling, YarnScaling | LongRopeScaling) else 1.0


def default_yarn_attention(factor: float, weight: float = 1.0) -> float:
    """The attention factor of the yarn paper for a context extended `factor` times."""
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def default_longrope_attention(factor: float, original_context: int) -> float:
    """The attention factor of the longrope paper for a context extended `factor` times."""
    return 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(original_context))


def rope_tables(rope: RopeConfig, start: int, stop: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin for positions start..stop-1, each f32 [positions, pairs]."""
    angles = np.arange(start, stop, dtype=np.float64)[:, None] * inverse_frequencies(rope)
    factor = attention_factor(rope)
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(np.float32)


def _yarn_ramp(rope: RopeConfig, scaling: YarnScaling) -> Frequencies:
    """0 where a pair keeps its frequency, 1 where it is fully divided, [pairs]."""

    def pair_turning(turns: float) -> float:
        per_turn = scaling.original_context / (turns * 2 * math.pi)
        return rope.rotary_dim * math.log(per_turn) / (2 * math.log(rope.base))

    low, high = pair_turning(scaling.beta_fast), pair_turning(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low if high != low else 0.001  # the published guard against a ramp of no width
    pairs = np.arange(rope.rotary_dim // 2, dtype=np.float64)
    return np.clip((pairs - low) / width, 0.0, 1.0)
