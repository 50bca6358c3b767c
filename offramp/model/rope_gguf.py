"""Rotary settings of a GGUF file: its `rope.*` keys, and the tensors that hold frequency divisors."""

from __future__ import annotations

import numpy as np

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.config import (
    FrequencyDivisors,
    LinearScaling,
    LongRopeScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.families import ROPE_TENSORS, Family
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields
from offramp.model.quantize import not_finite
from offramp.model.rope import default_yarn_attention
from offramp.model.stored import check_decodable, decode_rows

DIVISORS_TENSOR, LONG_TENSOR, SHORT_TENSOR = ROPE_TENSORS
DEFAULT_BASE = 10000.0


def rope_from_gguf(
    file: GgufFile, fields: Fields, prefix: str, family: Family, head_dim: int, max_context: int
) -> RopeConfig:
    """The rotation of the layers, of those that see everything where others have their own."""
    key = prefix + "rope.dimension_count"
    rotary_dim = fields.integer(key, head_dim)
    if rotary_dim > head_dim:
        raise fields.error(key, f"at most the head's width ({head_dim})")
    if rotary_dim < head_dim and not family.partial_rotary:
        raise UnsupportedModelError(
            f"{fields.where}: {key}={rotary_dim} differs from the head's width ({head_dim})",
            hint="offramp has no such variant of this family",
        )
    base = fields.number(prefix + "rope.freq_base", DEFAULT_BASE)
    scaling = _scaling(file, fields, prefix + "rope.", rotary_dim // 2, max_context)
    return RopeConfig(base=base, rotary_dim=rotary_dim, scaling=scaling)


def local_rope_from_gguf(fields: Fields, prefix: str, rope: RopeConfig) -> RopeConfig:
    """The rotation of layers with a window in families where they have their own."""
    key = prefix + "rope.dimension_count_swa"
    if fields.integer(key, rope.rotary_dim) != rope.rotary_dim:
        raise UnsupportedModelError(
            f"{fields.where}: {key}={fields.values[key]} differs from the other layers' {rope.rotary_dim}",
            hint="offramp has no such variant of this family",
        )
    return RopeConfig(base=fields.number(prefix + "rope.freq_base_swa", DEFAULT_BASE), rotary_dim=rope.rotary_dim)


def _scaling(file: GgufFile, fields: Fields, prefix: str, pairs: int, max_context: int) -> RopeScaling | None:
    if LONG_TENSOR in file.tensors:
        scaling: RopeScaling | None = _longrope(file, fields, prefix + "scaling.", pairs, max_context)
    else:
        scaling = _keyed(fields, prefix, max_context)
    return _divisors(file, scaling, pairs) if DIVISORS_TENSOR in file.tensors else scaling


def _keyed(fields: Fields, prefix: str, max_context: int) -> RopeScaling | None:
    """The `rope.scaling.*` keys; a factor without a type means linear, as does the older key `rope.scale_linear`."""
    kind = fields.text(prefix + "scaling.type", "linear")
    factor = fields.number(prefix + "scaling.factor", fields.number(prefix + "scale_linear", 0.0)) or 1.0
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return LinearScaling(factor=factor)
    if kind != "yarn":
        raise UnsupportedModelError(
            f"{fields.where}: {prefix}scaling.type={kind!r} is not supported"
            + (f" without the tensor {LONG_TENSOR!r}" if kind == "longrope" else ""),
            hint="supported: none, linear, yarn, and longrope with its tensors",
        )
    # Converters write transformers' attention_factor, which is the whole of it.
    attention = fields.number(prefix + "scaling.yarn_attn_factor", default_yarn_attention(factor))
    return YarnScaling(
        factor=factor,
        original_context=fields.integer(prefix + "scaling.original_context_length", max_context),
        attention_factor=attention * fields.number(prefix + "scaling.attn_factor", 1.0),
        beta_fast=fields.number(prefix + "scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number(prefix + "scaling.yarn_beta_slow", 1.0),
    )


def _longrope(file: GgufFile, fields: Fields, prefix: str, pairs: int, max_context: int) -> LongRopeScaling:
    """The factors of the two `rope_factors` tensors."""
    kind = fields.text(prefix + "type", "longrope")
    if kind != "longrope":
        raise CorruptModelError(
            f"{fields.where}: {prefix}type={kind!r} contradicts the tensor {LONG_TENSOR!r}",
            hint="fetch the model again",
        )
    return LongRopeScaling(
        short_divisors=_factors(file, SHORT_TENSOR, pairs),
        long_divisors=_factors(file, LONG_TENSOR, pairs),
        original_context=fields.integer(prefix + "original_context_length", max_context),
        attention_factor=fields.number(prefix + "attn_factor", 1.0),
        context=max_context,
    )


def _divisors(file: GgufFile, scaling: RopeScaling | None, pairs: int) -> FrequencyDivisors:
    """The divisors of the `rope_freqs` tensor, times the factor of a linear scaling beside it."""
    if isinstance(scaling, YarnScaling | LongRopeScaling):
        raise UnsupportedModelError(
            f"tensor {DIVISORS_TENSOR!r} with rope scaling {scaling} is not supported", hint="it should be alone"
        )
    factor = scaling.factor if isinstance(scaling, LinearScaling) else 1.0
    divisors = _factors(file, DIVISORS_TENSOR, pairs)
    return FrequencyDivisors(divisors=tuple(divisor * factor for divisor in divisors))


def _factors(file: GgufFile, name: str, pairs: int) -> tuple[float, ...]:
    if name not in file.tensors:
        raise CorruptModelError(f"tensor {name!r} is missing", hint="fetch the model again")
    tensor = file.tensors[name]
    if tensor.shape != (pairs,):
        raise CorruptModelError(
            f"tensor {name!r} has shape {list(tensor.shape)}, the rotation calls for {[pairs]}",
            hint="the metadata and the tensors belong to different models, or the file is damaged",
        )
    check_decodable(tensor)
    values = decode_rows(tensor, 0, 1)[0].astype(np.float64)
    if not np.isfinite(values).all():
        raise not_finite(name)
    return tuple(values.tolist())
