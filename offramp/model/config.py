"""What a model is, independent of the file it came from: frozen, validated once, read by everyone.

`config_hf.py` (with `rope_hf.py` and `attention_hf.py`) and `config_gguf.py` (with `rope_gguf.py`) fill it in. They,
and `generation.py` for the checkpoint's generation settings, are the only readers of Hugging Face / GGUF metadata names
outside the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRopeScaling:
    """Each frequency divided by its own number, out of one list for contexts up to `original_context` and another for
    longer ones; cos and sin are multiplied by `attention_factor`.
    """

    short_divisors: tuple[float, ...]  # [rotary_dim / 2]
    long_divisors: tuple[float, ...]  # [rotary_dim / 2]
    original_context: int  # positions
    attention_factor: float
    context: int  # positions served: it alone chooses the list, so that a row never depends on its sequence's length

    def __post_init__(self) -> None:
        for divisor in (*self.short_divisors, *self.long_divisors):
            _check_positive("rope frequency divisor", divisor)
        _check_size("rope original_context", self.original_context)
        _check_size("rope context", self.context)
        _check_positive("rope attention_factor", self.attention_factor)
        if len(self.short_divisors) != len(self.long_divisors):
            counts = (len(self.short_divisors), len(self.long_divisors))
            raise _impossible("number of short and long rope factors", counts, "two lists of one length")

    @property
    def divisors(self) -> tuple[float, ...]:
        """Those of the context served, [rotary_dim / 2]."""
        return self.long_divisors if self.context > self.original_context else self.short_divisors


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyDivisors | LongRopeScaling


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
        if isinstance(self.scaling, FrequencyDivisors | LongRopeScaling):
            count = len(self.scaling.divisors)
            if count != self.rotary_dim // 2:
                wanted = f"rotary_dim / 2 = {self.rotary_dim // 2}"
                raise _impossible("number of rope frequency divisors", count, wanted)

    def for_context(self, context: int) -> RopeConfig:
        """The same for a server of contexts up to `context` positions."""
        if not isinstance(self.scaling, LongRopeScaling):
            return self
        return replace(self, scaling=replace(self.scaling, context=context))


Activation = Literal["silu", "gelu_tanh"]
"""What the MLP's gate goes through: SwiGLU, or GeGLU by gelu's tanh approximation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerForm:
    """What a layer has besides the parts of Llama's."""

    qkv_bias: bool = False  # added to q, k and v
    qk_norm: bool = False  # RMSNorm of each head of q and k, before rope
    post_norms: bool = False  # RMSNorm of what attention and MLP give, before it is added to the residual stream
    activation: Activation = "silu"


PLAIN_FORM = LayerForm()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAttention:
    """What may differ from layer to layer."""

    rope: RopeConfig | None  # None: this layer doesn't rotate
    window: int | None = None  # a row at position t sees positions t - window + 1 .. t; None: all up to t

    def __post_init__(self) -> None:
        if self.window is not None:
            _check_size("attention window", self.window)


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
    form: LayerForm = PLAIN_FORM
    embedding_scale: float = 1.0  # what embeddings are multiplied by
    query_scale: float | None = None  # what scores of attention are multiplied by; None: 1 / sqrt(head_dim)
    attention: tuple[LayerAttention, ...] = ()  # by layer; empty: all of them with `rope` and without a window

    def __post_init__(self) -> None:
        _check_size("num_layers", self.num_layers, MAX_LAYERS)
        for name in ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size"):
            _check_size(name, getattr(self, name))
        _check_size("max_context", self.max_context)
        _check_positive("norm_eps", self.norm_eps)
        if self.num_heads % self.num_kv_heads:
            raise _impossible("num_kv_heads", self.num_kv_heads, f"a divisor of num_heads ({self.num_heads})")
        _check_positive("embedding_scale", self.embedding_scale)
        _check_positive("query_scale", self.attention_scale)
        if self.attention and len(self.attention) != self.num_layers:
            raise _impossible("number of layers with attention settings", len(self.attention), f"{self.num_layers}")
        for rope in self.ropes:
            if rope.rotary_dim > self.head_dim:
                raise _impossible("rotary_dim", rope.rotary_dim, f"at most head_dim ({self.head_dim})")

    @property
    def attention_scale(self) -> float:
        return 1 / math.sqrt(self.head_dim) if self.query_scale is None else self.query_scale

    def attention_of(self, layer: int) -> LayerAttention:
        """A layer's settings; side layers have those of a plain layer."""
        return self.attention[layer] if layer < len(self.attention) else LayerAttention(rope=self.rope)

    @property
    def ropes(self) -> tuple[RopeConfig, ...]:
        """The rotations that layers use, `rope` first, each once."""
        return tuple(dict.fromkeys([self.rope, *(layer.rope for layer in self.attention if layer.rope)]))

    def for_context(self, context: int) -> ModelConfig:
        """The same model for a server of contexts up to `context` positions."""
        layers = tuple(replace(layer, rope=layer.rope and layer.rope.for_context(context)) for layer in self.attention)
        return replace(self, rope=self.rope.for_context(context), attention=layers)


def layers_attention(
    layers: Iterable[LayerAttention], rope: RopeConfig, max_context: int
) -> tuple[LayerAttention, ...]:
    """Settings by layer in their one canonical form: a window that hides nothing is none, and plain layers are ()."""
    seen = [replace(a, window=None) if a.window and a.window >= max_context else a for a in layers]
    return () if all(layer == LayerAttention(rope=rope) for layer in seen) else tuple(seen)


def _check_size(name: str, value: int, high: int = MAX_SIZE) -> None:
    if not 1 <= value <= high:
        raise _impossible(name, value, f"an integer in [1, {high}]")


def _check_positive(name: str, value: float) -> None:
    """Constants of the arithmetic are f32, and must not become 0 or infinite there."""
    if not SMALLEST <= value <= LARGEST:
        raise _impossible(name, value, "a positive finite f32 number")


def _impossible(name: str, value: object, wanted: str) -> CorruptModelError:
    return CorruptModelError(f"model config: {name}={value!r} is impossible", hint=f"{name} takes {wanted}")
