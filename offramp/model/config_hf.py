"""Hugging Face `config.json` -> ModelConfig: all its spellings, and a refusal by name of what we don't implement."""

from __future__ import annotations

import logging
from typing import Protocol

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.config import (
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.families import family_of_hf
from offramp.model.metadata import Fields
from offramp.model.rope import default_yarn_attention

log = logging.getLogger("offramp")

DEFAULT_ROPE_BASE = 10000.0


def config_from_hf(fields: Fields) -> ModelConfig:
    """Read `config.json`. Raises UnsupportedModelError or CorruptModelError naming the field."""
    family = family_of_hf(_architecture(fields))
    _refuse_variants(fields)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if not fields.has("head_dim") and hidden % heads:
        raise fields.error("hidden_size", f"a multiple of num_attention_heads ({heads}) when head_dim is not given")
    head_dim = fields.integer("head_dim", hidden // heads)
    max_context = fields.integer("max_position_embeddings", 2048)
    return ModelConfig(
        family=family.name,
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        vocab_size=fields.integer("vocab_size"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope_from_hf(fields, head_dim, max_context),
        max_context=max_context,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
    )


def rope_from_hf(fields: Fields, head_dim: int, max_context: int) -> RopeConfig:
    """Rotary settings from `rope_theta` and `rope_scaling`, or from the newer `rope_parameters` that holds both."""
    older, newer = fields.group("rope_scaling"), fields.group("rope_parameters")
    if older and newer and older.values != newer.values:
        raise CorruptModelError(
            f"{fields.where}: rope_scaling and rope_parameters contradict each other", hint="keep one of the two"
        )
    group = newer or older
    base = fields.number("rope_theta", DEFAULT_ROPE_BASE)
    if group is None:
        return RopeConfig(base=base, rotary_dim=head_dim)
    base = group.number("rope_theta", base)
    if group.number("partial_rotary_factor", 1.0) != 1.0:
        raise _unsupported(group, "partial_rotary_factor")
    return RopeConfig(base=base, rotary_dim=head_dim, scaling=_scaling(group, max_context))


class _ScalingReader(Protocol):
    def __call__(self, group: Fields, max_context: int) -> RopeScaling | None: ...


def _scaling(group: Fields, max_context: int) -> RopeScaling | None:
    """The scaling named by `rope_type`, or by its older spelling `type`."""
    if any(isinstance(value, dict) for value in group.values.values()):
        raise UnsupportedModelError(
            f"{group.where}: rotary settings per layer type are not supported", hint="use a Llama checkpoint"
        )
    kind = group.text("rope_type", group.text("type", "default"))
    if kind not in SCALINGS:
        raise UnsupportedModelError(
            f"{group.where}: rope type {kind!r} is not supported", hint=f"supported: {', '.join(SCALINGS)}"
        )
    read, known = SCALINGS[kind]
    unused = sorted(group.values.keys() - known - {"rope_type", "type", "rope_theta", "partial_rotary_factor"})
    if unused:
        log.warning("%s: rope type %r has no use for %s", group.where, kind, ", ".join(unused))
    return read(group, max_context)


def _default(group: Fields, max_context: int) -> None:
    return None


def _linear(group: Fields, max_context: int) -> LinearScaling:
    return LinearScaling(factor=group.number("factor"))


def _llama3(group: Fields, max_context: int) -> Llama3Scaling:
    return Llama3Scaling(
        factor=group.number("factor"),
        low_freq_factor=group.number("low_freq_factor"),
        high_freq_factor=group.number("high_freq_factor"),
        original_context=group.integer("original_max_position_embeddings", max_context),
    )


def _yarn(group: Fields, max_context: int) -> YarnScaling:
    original = group.integer("original_max_position_embeddings", max_context)
    factor = group.number("factor", max_context / original)
    mscale, mscale_all = group.number("mscale", 0.0, low=0.0), group.number("mscale_all_dim", 0.0, low=0.0)
    if mscale and mscale_all:
        attention = default_yarn_attention(factor, mscale) / default_yarn_attention(factor, mscale_all)
    else:
        attention = default_yarn_attention(factor)
    return YarnScaling(
        factor=factor,
        original_context=original,
        attention_factor=group.number("attention_factor", attention),
        beta_fast=group.number("beta_fast", 32.0),
        beta_slow=group.number("beta_slow", 1.0),
        truncate=group.flag("truncate", True),
    )


_YARN_FIELDS = frozenset(
    {
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "truncate",
        "mscale",
        "mscale_all_dim",
    }
)

SCALINGS: dict[str, tuple[_ScalingReader, frozenset[str]]] = {
    "default": (_default, frozenset()),
    "linear": (_linear, frozenset({"factor"})),
    "llama3": (
        _llama3,
        frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
    ),
    "yarn": (_yarn, _YARN_FIELDS),
}
"""Rope types: their reader and the fields it uses."""


def _architecture(fields: Fields) -> str:
    names = fields.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise fields.error("architectures", "a list of one architecture name")
    return names[0]


def _refuse_variants(fields: Fields) -> None:
    """Settings that change the arithmetic of a Llama layer and that offramp does not implement."""
    for name in ("attention_bias", "mlp_bias"):
        if fields.flag(name, False):
            raise _unsupported(fields, name)
    if fields.has("quantization_config"):
        raise UnsupportedModelError(
            f"{fields.where}: checkpoints with a quantization_config are not supported",
            hint="use the f16, bf16 or f32 checkpoint, or a GGUF file",
        )
    if fields.text("hidden_act", "silu") != "silu":
        raise _unsupported(fields, "hidden_act")
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise _unsupported(fields, "partial_rotary_factor")


def _unsupported(fields: Fields, name: str) -> UnsupportedModelError:
    value = fields.values[name]
    return UnsupportedModelError(
        f"{fields.where}: {name}={value!r} is not supported", hint="offramp has no kernel for this variant"
    )
