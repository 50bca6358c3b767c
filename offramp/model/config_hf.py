"""Hugging Face `config.json` -> ModelConfig: all its spellings, and a refusal by name of what we don't implement."""

from __future__ import annotations

import math
from collections.abc import Mapping

from offramp.errors import UnsupportedModelError
from offramp.model.attention_hf import FULL, attention_from_hf
from offramp.model.config import MAX_LAYERS, Activation, ModelConfig
from offramp.model.families import Family, family_of_hf, family_of_model_type
from offramp.model.metadata import Fields
from offramp.model.rope_hf import ropes_from_hf

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Names in config.json, and ours."""

REFUSED_FLAGS = ("attention_bias", "mlp_bias", "use_bidirectional_attention")
REFUSED_NUMBERS = ("attn_logit_softcapping", "final_logit_softcapping")


def config_from_hf(fields: Fields) -> ModelConfig:
    """Read `config.json`. Raises UnsupportedModelError or CorruptModelError naming the field."""
    family = _family(fields)
    fields = Fields({**family.hf_defaults, **fields.values}, fields.where)
    _refuse_variants(fields, family)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if not fields.has("head_dim") and hidden % heads:
        raise fields.error("hidden_size", f"a multiple of num_attention_heads ({heads}) when head_dim is not given")
    head_dim = fields.integer("head_dim", hidden // heads)
    max_context = fields.integer("max_position_embeddings", 2048)
    num_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    ropes = ropes_from_hf(fields, family, head_dim, max_context)
    return ModelConfig(
        family=family.name,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        vocab_size=fields.integer("vocab_size"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=ropes[FULL],
        max_context=max_context,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        form=family.form,
        embedding_scale=math.sqrt(hidden) if family.scaled_embedding else 1.0,
        query_scale=_query_scale(fields, family, head_dim),
        attention=attention_from_hf(fields, family, ropes, num_layers, max_context),
    )


def _query_scale(fields: Fields, family: Family, head_dim: int) -> float | None:
    """From the field that stands in for head_dim where a family has it; None where it is head_dim."""
    if "query_pre_attn_scalar" not in family.hf_defaults:
        return None
    scalar = fields.number("query_pre_attn_scalar", low=0.0)
    if scalar == 0.0:
        raise fields.error("query_pre_attn_scalar", "a number above 0")
    return None if scalar == head_dim else 1 / math.sqrt(scalar)


def _family(fields: Fields) -> Family:
    """By the architecture's name, or by the model type where there is none."""
    names = fields.values.get("architectures")
    if names is None and fields.has("model_type"):
        return family_of_model_type(fields.text("model_type"))
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise fields.error("architectures", "a list of one architecture name")
    return family_of_hf(names[0])


def _refuse_variants(fields: Fields, family: Family) -> None:
    """Settings that change the arithmetic of a layer and that offramp does not implement."""
    for name in REFUSED_FLAGS:
        if fields.flag(name, False):
            raise _unsupported(fields, name)
    for name in REFUSED_NUMBERS:
        if fields.has(name):
            raise _unsupported(fields, name)
    if fields.has("quantization_config"):
        raise UnsupportedModelError(
            f"{fields.where}: checkpoints with a quantization_config are not supported",
            hint="use the f16, bf16 or f32 checkpoint, or a GGUF file",
        )
    activation = family.hf_activation
    if ACTIVATIONS.get(fields.text(activation, "silu")) != family.form.activation:
        raise _unsupported(fields, activation)


def _unsupported(fields: Fields, name: str) -> UnsupportedModelError:
    value = fields.values[name]
    return UnsupportedModelError(
        f"{fields.where}: {name}={value!r} is not supported", hint="offramp has no kernel for this variant"
    )
