"""What a model is, independent of the file it came from: frozen, validated once, read by everyone.

`config_hf.py` and `config_gguf.py` fill it in. They, and `generation.py` for the checkpoint's generation settings, are
the only readers of Hugging Face / GGUF metadata names outside the tokenizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from offramp.errors import CorruptModelError

MAX_LAYERS = 4096
MAX_SIZE = 2**31 - 1
SMALLEST, LARGEST = 2.0**-149, 2.0**128 * (1 - 2.0**-24)
"""Positive f32 numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Every frequency divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        _check_positive("rope factor", self.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Long wavelengths divided by `factor`, short ones kept, a smooth blend between the two."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int  # positions

    def __post_init__(self) -> None:
        _check_positive("rope factor", self.factor)
        _check_positive("rope low_freq_factor", self.low_freq_factor)
        _check_size("rope original_context", self.original_context)
        if not self.low_freq_factor < self.high_freq_factor <= LARGEST:
            raise _impossible("rope high_freq_factor", self.high_freq_factor, "more than low_freq_factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """Pairs that turn fewer than `beta_slow` times in the original context are divided by `factor`, those that turn
    more than `beta_fast` times are kept, a ramp between; cos and sin are multiplied by `attention_factor`.
    """

    factor: float
    original_context: int  # positions
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True  # round the ramp's ends outwards to whole pairs

    def __post_init__(self) -> None:
        for name in ("factor", "attention_factor", "beta_fast", "beta_slow"):
            _check_positive(f"rope {name}", getattr(self, name))
        _check_size("rope original_context", self.original_context)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyDivisors:
    """Each frequency divided by its own number, as GGUF files store llama3 scaling."""

    divisors: tuple[float, ...]  # [rotary_dim / 2]

    def __post_init__(self) -> None:
        for divisor in self.divisors:
            _check_positive("rope frequency divisor", divisor)


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyDivisors


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding as data; `offramp/model/rope.py` turns it into frequencies."""

    base: float = 10000.0
    rotary_dim: int  # leading values of a head that rotate; even
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        _check_size("rotary_dim", self.rotary_dim)
        if self.rotary_dim % 2:
            raise _impossible("rotary_dim", self.rotary_dim, "an even number")
        if not 1.0 < self.base < math.inf:
            raise _impossible("rope base", self.base, "a number above 1")
        if isinstance(self.scaling, FrequencyDivisors) and len(self.scaling.divisors) != self.rotary_dim // 2:
            count = len(self.scaling.divisors)
            raise _impossible("number of rope frequency divisors", count, f"rotary_dim / 2 = {self.rotary_dim // 2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and constants of one decoder-only transformer; impossible values raise CorruptModelError."""

    family: str  # key in model/families.py, e.g. "llama"
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    rope: RopeConfig
    max_context: int  # positions the model was trained for
    tie_embeddings: bool

    def __post_init__(self) -> None:
        _check_size("num_layers", self.num_layers, MAX_LAYERS)
        for name in ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size"):
            _check_size(name, getattr(self, name))
        _check_size("max_context", self.max_context)
        _check_positive("norm_eps", self.norm_eps)
        if self.num_heads % self.num_kv_heads:
            raise _impossible("num_kv_heads", self.num_kv_heads, f"a divisor of num_heads ({self.num_heads})")
        if self.rope.rotary_dim > self.head_dim:
            raise _impossible("rotary_dim", self.rope.rotary_dim, f"at most head_dim ({self.head_dim})")


def _check_size(name: str, value: int, high: int = MAX_SIZE) -> None:
    if not 1 <= value <= high:
        raise _impossible(name, value, f"an integer in [1, {high}]")


def _check_positive(name: str, value: float) -> None:
    """Constants of the arithmetic are f32, and must not become 0 or infinite there."""
    if not SMALLEST <= value <= LARGEST:
        raise _impossible(name, value, "a positive finite f32 number")


def _impossible(name: str, value: object, wanted: str) -> CorruptModelError:
    return CorruptModelError(f"model config: {name}={value!r} is impossible", hint=f"{name} takes {wanted}")
