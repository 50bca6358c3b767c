"""GGUF metadata -> ModelConfig, and a refusal by name of what we don't implement."""

from __future__ import annotations

import math

import numpy as np

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.config import (
    MAX_LAYERS,
    FrequencyDivisors,
    LayerAttention,
    LinearScaling,
    LongRopeScaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
    layers_attention,
)
from offramp.model.families import ROPE_TENSORS, UNROTATED_EVERY, Family, family_of_gguf, tensor_name
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields
from offramp.model.rope import default_yarn_attention
from offramp.model.stored import check_decodable, decode_rows

DIVISORS_TENSOR, LONG_TENSOR, SHORT_TENSOR = ROPE_TENSORS

GEMMA3_PERIOD = 6  # each sixth layer sees everything
GEMMA3_27B_LAYERS = 62

_NEUTRAL: dict[str, float] = {
    "expert_count": 0,
    "logit_scale": 1,
    "residual_scale": 1,
    "embedding_scale": 1,
    "attention.scale": 0,
    "attention.clamp_kqv": 0,
    "attn_logit_softcapping": 0,
    "final_logit_softcapping": 0,
    "rope.scaling.yarn_log_multiplier": 0,
    "rope.scaling.yarn_ext_factor": 1,
    "rope.scaling.yarn_attn_factor": 1,
}
"""Keys that change the arithmetic in a way offramp does not implement, and the value at which they don't."""


def gguf_fields(file: GgufFile) -> Fields:
    """The file's metadata for checked reading."""
    return Fields(file.metadata, file.path.name)


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """Read the metadata. Raises UnsupportedModelError or CorruptModelError naming the field."""
    fields = gguf_fields(file)
    architecture = fields.text("general.architecture")
    family = family_of_gguf(architecture)
    prefix = architecture + "."
    _refuse_variants(fields, prefix)
    hidden, heads = fields.integer(prefix + "embedding_length"), _per_layer(fields, prefix + "attention.head_count")
    head_dim = _head_dim(fields, prefix, hidden, heads)
    max_context = fields.integer(prefix + "context_length")
    num_layers = fields.integer(prefix + "block_count", high=MAX_LAYERS)
    rope = _rope(file, fields, prefix, head_dim, max_context)
    return ModelConfig(
        family=family.name,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=_per_layer(fields, prefix + "feed_forward_length"),
        num_heads=heads,
        num_kv_heads=_per_layer(fields, prefix + "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab_size=_vocab_size(file, family, fields, prefix),
        norm_eps=fields.number(prefix + "attention.layer_norm_rms_epsilon"),
        rope=rope,
        max_context=max_context,
        tie_embeddings=tensor_name(family.gguf_names, "lm_head") not in file.tensors,
        form=family.form,
        embedding_scale=math.sqrt(hidden) if family.scaled_embedding else 1.0,
        query_scale=_query_scale(family, num_layers, hidden / heads, head_dim),
        attention=layers_attention(_layers(fields, prefix, family, rope, num_layers, max_context), rope, max_context),
    )


def _query_scale(family: Family, num_layers: int, quotient: float, head_dim: int) -> float | None:
    """Files don't tell it: llama.cpp knows the one Gemma whose queries are scaled by another width by its depth."""
    differs = family.name == "gemma3" and num_layers == GEMMA3_27B_LAYERS and quotient != head_dim
    return 1 / math.sqrt(quotient) if differs else None


def _layers(
    fields: Fields, prefix: str, family: Family, rope: RopeConfig, num_layers: int, max_context: int
) -> list[LayerAttention]:
    """Attention by layer: a window holds in all layers, in some families in the usual ones of them."""
    key = prefix + "attention.sliding_window"
    window = fields.integer(key, 0, low=0) or None
    if window and window < max_context and family.windows in ("deep", "unrotated"):
        raise _unsupported(fields, key)  # files don't tell which layers it is for
    if family.unrotated_layers:
        return [LayerAttention(rope=rope if (i + 1) % UNROTATED_EVERY else None) for i in range(num_layers)]
    if window is None or family.windows != "pattern":
        return [LayerAttention(rope=rope, window=window)] * num_layers
    base = fields.number(prefix + "rope.freq_base_swa", 10000.0)
    local = LayerAttention(rope=RopeConfig(base=base, rotary_dim=rope.rotary_dim), window=window)
    slides = _sliding(fields, prefix + "attention.sliding_window_pattern", num_layers)
    return [local if slide else LayerAttention(rope=rope) for slide in slides]


def _sliding(fields: Fields, key: str, num_layers: int) -> list[bool]:
    """Whether each layer has the window: by the file's list, or all but each n-th."""
    listed = fields.values.get(key)
    if isinstance(listed, list):
        if len(listed) != num_layers or any(value not in (0, 1) for value in listed):
            raise fields.error(key, f"a list of {num_layers} truth values, or a period")
        return [bool(value) for value in listed]
    period = fields.integer(key, GEMMA3_PERIOD)
    return [(i + 1) % period != 0 for i in range(num_layers)]


def _rope(file: GgufFile, fields: Fields, prefix: str, head_dim: int, max_context: int) -> RopeConfig:
    rotary_dim = fields.integer(prefix + "rope.dimension_count", head_dim)
    if LONG_TENSOR in file.tensors:
        scaling: RopeScaling | None = _longrope(file, fields, prefix + "rope.scaling.", max_context)
    else:
        scaling = _scaling(fields, prefix + "rope.", max_context)
    if DIVISORS_TENSOR in file.tensors:
        scaling = _divisors(file, scaling)
    return RopeConfig(base=fields.number(prefix + "rope.freq_base", 10000.0), rotary_dim=rotary_dim, scaling=scaling)


def _scaling(fields: Fields, prefix: str, max_context: int) -> RopeScaling | None:
    """The `rope.scaling.*` keys; a factor without a type means linear, as does the older key `rope.scale_linear`."""
    kind = fields.text(prefix + "scaling.type", "linear")
    factor = fields.number(prefix + "scaling.factor", fields.number(prefix + "scale_linear", 0.0)) or 1.0
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return LinearScaling(factor=factor)
    if kind != "yarn":
        raise UnsupportedModelError(
            f"{fields.where}: {prefix}scaling.type={kind!r} is not supported", hint="supported: none, linear, yarn"
        )
    return YarnScaling(
        factor=factor,
        original_context=fields.integer(prefix + "scaling.original_context_length", max_context),
        attention_factor=default_yarn_attention(factor) * fields.number(prefix + "scaling.attn_factor", 1.0),
        beta_fast=fields.number(prefix + "scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number(prefix + "scaling.yarn_beta_slow", 1.0),
    )


def _longrope(file: GgufFile, fields: Fields, prefix: str, max_context: int) -> LongRopeScaling:
    """The factors of the two `rope_factors` tensors."""
    kind = fields.text(prefix + "type", "longrope")
    if kind != "longrope":
        raise CorruptModelError(
            f"{fields.where}: {prefix}type={kind!r} contradicts the tensor {LONG_TENSOR!r}",
            hint="fetch the model again",
        )
    return LongRopeScaling(
        short_divisors=_factors(file, SHORT_TENSOR),
        long_divisors=_factors(file, LONG_TENSOR),
        original_context=fields.integer(prefix + "original_context_length", max_context),
        attention_factor=fields.number(prefix + "attn_factor", 1.0),
        context=max_context,
    )


def _factors(file: GgufFile, name: str) -> tuple[float, ...]:
    if name not in file.tensors:
        raise CorruptModelError(f"tensor {name!r} is missing", hint="fetch the model again")
    tensor = file.tensors[name]
    if len(tensor.shape) != 1:
        raise CorruptModelError(f"tensor {name!r} has shape {list(tensor.shape)}", hint="it should be a vector")
    check_decodable(tensor)
    values: list[float] = decode_rows(tensor, 0, 1)[0].astype(np.float64).tolist()
    return tuple(values)


def _divisors(file: GgufFile, scaling: RopeScaling | None) -> FrequencyDivisors:
    """The divisors of the `rope_freqs` tensor, times the factor of a linear scaling beside it."""
    if isinstance(scaling, YarnScaling | LongRopeScaling):
        raise UnsupportedModelError(
            f"tensor {DIVISORS_TENSOR!r} with rope scaling {scaling} is not supported", hint="it should be alone"
        )
    factor = scaling.factor if isinstance(scaling, LinearScaling) else 1.0
    return FrequencyDivisors(divisors=tuple(divisor * factor for divisor in _factors(file, DIVISORS_TENSOR)))


def _head_dim(fields: Fields, prefix: str, hidden: int, heads: int) -> int:
    key, value = prefix + "attention.key_length", prefix + "attention.value_length"
    if not fields.has(key) and hidden % heads:
        raise fields.error(prefix + "embedding_length", f"a multiple of the head count ({heads})")
    head_dim = fields.integer(key, hidden // heads)
    if fields.integer(value, head_dim) != head_dim:
        raise UnsupportedModelError(
            f"{fields.where}: {value} differs from {key} ({head_dim})", hint="keys and values must have one width"
        )
    return head_dim


def _vocab_size(file: GgufFile, family: Family, fields: Fields, prefix: str) -> int:
    """The key, or the embedding's rows where it is absent."""
    name = tensor_name(family.gguf_names, "embedding")
    if name not in file.tensors:
        raise CorruptModelError(f"{fields.where}: tensor {name!r} is missing", hint="fetch the model again")
    return fields.integer(prefix + "vocab_size", file.tensors[name].shape[0])


def _per_layer(fields: Fields, name: str, default: int | None = None) -> int:
    """A number that files may also give once a layer; all layers must agree."""
    value = fields.values.get(name)
    if not isinstance(value, list):
        return fields.integer(name, default)
    if not value or any(v != value[0] for v in value):
        raise UnsupportedModelError(
            f"{fields.where}: {name} differs between layers", hint="layers of different shape are not supported"
        )
    return Fields({name: value[0]}, fields.where).integer(name)


def _refuse_variants(fields: Fields, prefix: str) -> None:
    for key, neutral in _NEUTRAL.items():
        if not math.isclose(fields.number(prefix + key, neutral), neutral):
            raise _unsupported(fields, prefix + key)
    if fields.integer("split.count", 1, low=0) > 1:
        raise _unsupported(fields, "split.count")


def _unsupported(fields: Fields, name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{fields.where}: {name}={fields.values[name]!r} is not supported",
        hint="offramp does not implement this variant",
    )
