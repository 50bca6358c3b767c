"""GGUF metadata -> ModelConfig, and a refusal by name of what we don't implement."""

from __future__ import annotations

import math

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.config import MAX_LAYERS, LayerAttention, ModelConfig, RopeConfig, layers_attention
from offramp.model.families import UNROTATED_EVERY, Family, family_of_gguf, tensor_name
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields
from offramp.model.rope_gguf import local_rope_from_gguf, rope_from_gguf

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
    "attention.max_alibi_bias": 0,
    "attention.output_scale": 1,
    "attention.shared_kv_layers": 0,
    "attention.temperature_scale": 0,
    "nextn_predict_layers": 0,
    "rope.scaling.alpha": 0,
    "rope.scaling.yarn_log_multiplier": 0,
    "rope.scaling.yarn_ext_factor": 1,
}
"""Keys that change the arithmetic in a way offramp does not implement, and the value at which they don't."""

_NEUTRAL_FLAGS = {"attention.causal": True, "use_parallel_residual": False, "swin_norm": False}


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
    rope = rope_from_gguf(file, fields, prefix, family, head_dim, max_context)
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
    """Attention by layer."""
    key = prefix + "attention.sliding_window"
    window = fields.integer(key, 0, low=0) or None
    slides = _sliding(fields, prefix, family, num_layers, window, max_context)
    near = local_rope_from_gguf(fields, prefix, rope) if family.local_rope else rope
    turns = [not family.unrotated_layers or (i + 1) % UNROTATED_EVERY != 0 for i in range(num_layers)]
    return [
        LayerAttention(rope=(near if slide else rope) if turn else None, window=window if slide else None)
        for slide, turn in zip(slides, turns, strict=True)
    ]


def _sliding(
    fields: Fields, prefix: str, family: Family, num_layers: int, window: int | None, max_context: int
) -> list[bool]:
    """Whether each layer has the window: as the file lists them, all but each n-th, or by the family's rule."""
    key = prefix + "attention.sliding_window_pattern"
    listed = fields.values.get(key)
    if isinstance(listed, list) and (len(listed) != num_layers or any(value not in (0, 1) for value in listed)):
        raise fields.error(key, f"a list of {num_layers} truth values, or a period")
    if window is None:
        return [False] * num_layers
    if isinstance(listed, list):
        return [bool(value) for value in listed]
    if listed is None and family.windows in ("deep", "unrotated"):
        if window < max_context:
            raise UnsupportedModelError(
                f"{fields.where}: {prefix}attention.sliding_window={window} without {key}",
                hint="the file does not say which layers the window is for; use a safetensors folder",
            )
        return [False] * num_layers
    period = fields.integer(key, GEMMA3_PERIOD if family.windows == "pattern" else 0, low=0)
    return [period == 0 or (i + 1) % period != 0 for i in range(num_layers)]


def _head_dim(fields: Fields, prefix: str, hidden: int, heads: int) -> int:
    key, value = prefix + "attention.key_length", prefix + "attention.value_length"
    others = (value, f"{key}_swa", f"{value}_swa")
    if not fields.has(key) and hidden % heads:
        raise fields.error(prefix + "embedding_length", f"a multiple of the head count ({heads})")
    head_dim = fields.integer(key, hidden // heads)
    for other in others:
        if fields.integer(other, head_dim) != head_dim:
            raise UnsupportedModelError(
                f"{fields.where}: {other} differs from {key} ({head_dim})", hint="keys and values must have one width"
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
    for key, usual in _NEUTRAL_FLAGS.items():
        if fields.flag(prefix + key, usual) != usual:
            raise _unsupported(fields, prefix + key)
    sections = fields.values.get(prefix + "rope.dimension_sections")
    if sections is not None and sections != [0] * 4:
        raise _unsupported(fields, prefix + "rope.dimension_sections")
    if fields.integer("split.count", 1, low=0) > 1:
        raise _unsupported(fields, "split.count")


def _unsupported(fields: Fields, name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{fields.where}: {name}={fields.values[name]!r} is not supported",
        hint="offramp does not implement this variant",
    )
