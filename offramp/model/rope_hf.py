"""Rotary settings of a Hugging Face `config.json`, in all their spellings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.config import (
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.families import Family
from offramp.model.metadata import Fields
from offramp.model.rope import default_longrope_attention, default_yarn_attention
from offramp.params import shown

log = logging.getLogger("offramp")

DEFAULT_ROPE_BASE = 10000.0

LayerType = Literal["full_attention", "sliding_attention"]


def ropes_from_hf(fields: Fields, family: Family, head_dim: int, max_context: int) -> Mapping[LayerType, RopeConfig]:
    """The rotation of each type of layer, from `rope_theta` and `rope_scaling`, or from the newer `rope_parameters`
    that holds both; in families with a local rope, layers with a window have their own.
    """
    group = _group(fields)
    by_type = group is not None and _by_type(group)
    full = group.group("full_attention") if group and by_type else group
    rope = _rope(fields, family, full, "rope_theta", head_dim, max_context)
    if not family.local_rope:
        if group and by_type:
            raise UnsupportedModelError(
                f"{group.where}: rotary settings per layer type are not supported for {family.name}",
                hint="offramp has no such variant of this family",
            )
        return {"full_attention": rope, "sliding_attention": rope}
    local = group.group("sliding_attention") if group and by_type else None
    sliding = _rope(fields, family, local, "rope_local_base_freq", head_dim, max_context)
    return {"full_attention": rope, "sliding_attention": sliding}


def _group(fields: Fields) -> Fields | None:
    """The settings in one spelling; where a file has both groups, what they share must agree."""
    older, newer = fields.group("rope_scaling"), fields.group("rope_parameters")
    if older is None or newer is None:
        return newer or older
    first, second = _one_spelling(older), _one_spelling(newer)
    different = [name for name in sorted(first.keys() & second.keys()) if first[name] != second[name]]
    if different or _by_type(older) != _by_type(newer):
        where = f" in {different[0]!r}" if different else ": one has a group for each layer type"
        raise CorruptModelError(
            f"{fields.where}: rope_scaling and rope_parameters contradict each other{where}",
            hint="keep one of the two",
        )
    return Fields(first | second, newer.where)


def _by_type(group: Fields) -> bool:
    """Whether it holds a group for each type of layer."""
    return any(isinstance(value, dict) for value in group.values.values())


def _one_spelling(group: Fields) -> dict[str, object]:
    named = {"rope_type": group.values["type"]} if group.has("type") else {}
    return {**named, **{name: value for name, value in group.values.items() if name != "type"}}


def _rope(
    fields: Fields, family: Family, group: Fields | None, base_field: str, head_dim: int, max_context: int
) -> RopeConfig:
    base = fields.number(base_field, DEFAULT_ROPE_BASE)
    part = fields.number("partial_rotary_factor", 1.0)
    holder = fields
    if group is not None:
        base = group.number("rope_theta", base)
        holder = group if group.has("partial_rotary_factor") else fields
        part = group.number("partial_rotary_factor", part)
    if part != 1.0 and not family.partial_rotary:
        raise UnsupportedModelError(
            f"{holder.where}: partial_rotary_factor={part} is not supported",
            hint="offramp has no such variant of this family",
        )
    if not 0.0 < part <= 1.0:
        raise holder.error("partial_rotary_factor", "a number above 0, at most 1")
    scaling = None if group is None else _scaling(fields, family, group, max_context)
    return RopeConfig(base=base, rotary_dim=int(head_dim * part), scaling=scaling)


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What scalings are measured by, in positions."""

    longest: int
    original: int


class _ScalingReader(Protocol):
    def __call__(self, group: Fields, contexts: _Contexts) -> RopeScaling | None: ...


def _scaling(fields: Fields, family: Family, group: Fields, max_context: int) -> RopeScaling | None:
    """The scaling named by `rope_type`, or by its older spelling `type`."""
    named = group.text("rope_type", group.text("type", "default"))
    kind = family.hf_rope_types.get(named, named)
    if kind not in SCALINGS:
        raise UnsupportedModelError(
            f"{group.where}: rope type {named!r} is not supported", hint=f"supported: {', '.join(SCALINGS)}"
        )
    read, known = SCALINGS[kind]
    unused = sorted(group.values.keys() - known - {"rope_type", "type", "rope_theta", "partial_rotary_factor"})
    if unused:
        log.warning("%s: rope type %r has no use for %s", group.where, named, ", ".join(map(shown, unused)))
    original = group.integer("original_max_position_embeddings", max_context)
    return read(group, _Contexts(max_context, fields.integer("original_max_position_embeddings", original)))


def _default(group: Fields, contexts: _Contexts) -> None:
    return None


def _linear(group: Fields, contexts: _Contexts) -> LinearScaling:
    return LinearScaling(factor=group.number("factor"))


def _llama3(group: Fields, contexts: _Contexts) -> Llama3Scaling:
    return Llama3Scaling(
        factor=group.number("factor"),
        low_freq_factor=group.number("low_freq_factor"),
        high_freq_factor=group.number("high_freq_factor"),
        original_context=contexts.original,
    )


def _yarn(group: Fields, contexts: _Contexts) -> YarnScaling:
    factor = group.number("factor", contexts.longest / contexts.original)
    mscale, mscale_all = group.number("mscale", 0.0, low=0.0), group.number("mscale_all_dim", 0.0, low=0.0)
    if mscale and mscale_all:
        attention = default_yarn_attention(factor, mscale) / default_yarn_attention(factor, mscale_all)
    else:
        attention = default_yarn_attention(factor)
    return YarnScaling(
        factor=factor,
        original_context=contexts.original,
        attention_factor=group.number("attention_factor", attention),
        beta_fast=group.number("beta_fast", 32.0),
        beta_slow=group.number("beta_slow", 1.0),
        truncate=group.flag("truncate", True),
    )


def _longrope(group: Fields, contexts: _Contexts) -> LongRopeScaling:
    factor = group.number("factor", contexts.longest / contexts.original)
    if contexts.original < 2:
        raise group.error("original_max_position_embeddings", "at least 2 positions")
    return LongRopeScaling(
        short_divisors=group.numbers("short_factor"),
        long_divisors=group.numbers("long_factor"),
        original_context=contexts.original,
        attention_factor=group.number("attention_factor", default_longrope_attention(factor, contexts.original)),
        context=contexts.longest,
    )


_ORIGINAL = "original_max_position_embeddings"
_YARN_FIELDS = frozenset(
    {"factor", _ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim"}
)

SCALINGS: dict[str, tuple[_ScalingReader, frozenset[str]]] = {
    "default": (_default, frozenset()),
    "linear": (_linear, frozenset({"factor"})),
    "llama3": (_llama3, frozenset({"factor", "low_freq_factor", "high_freq_factor", _ORIGINAL})),
    "yarn": (_yarn, _YARN_FIELDS),
    "longrope": (_longrope, frozenset({"short_factor", "long_factor", "factor", "attention_factor", _ORIGINAL})),
}
"""Rope types: their reader and the fields it uses."""
