"""Which layers rotate and how far each sees, from a Hugging Face `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from offramp.errors import UnsupportedModelError
from offramp.model.config import LayerAttention, RopeConfig, layers_attention
from offramp.model.families import UNROTATED_EVERY, Family
from offramp.model.metadata import Fields
from offramp.model.rope_hf import LayerType

FULL: LayerType = "full_attention"
SLIDING: LayerType = "sliding_attention"


def attention_from_hf(
    fields: Fields, family: Family, ropes: Mapping[LayerType, RopeConfig], num_layers: int, max_context: int
) -> tuple[LayerAttention, ...]:
    """Attention by layer; () where all layers are plain."""
    rotated = _rotated(fields, family, num_layers)
    window = _window(fields, family)
    layers = [
        LayerAttention(rope=ropes[kind] if turns else None, window=window if kind == SLIDING else None)
        for kind, turns in zip(_layer_types(fields, family, window, rotated), rotated, strict=True)
    ]
    return layers_attention(layers, ropes[FULL], max_context)


def _window(fields: Fields, family: Family) -> int | None:
    """The window of those layers that have one; without `use_sliding_window` the field is without effect."""
    if family.windows == "none" or (family.optional_window and not fields.flag("use_sliding_window", False)):
        return None
    return fields.integer("sliding_window", 0, low=0) or None


def _rotated(fields: Fields, family: Family, num_layers: int) -> list[bool]:
    if not family.unrotated_layers:
        return [True] * num_layers
    if not fields.has("no_rope_layers"):
        every = fields.integer("no_rope_layer_interval", UNROTATED_EVERY)
        return [(i + 1) % every != 0 for i in range(num_layers)]
    listed = fields.values["no_rope_layers"]
    if not isinstance(listed, list) or len(listed) < num_layers or any(value not in (0, 1) for value in listed):
        raise fields.error("no_rope_layers", f"a list of 1 (rope) or 0 (none) for each of {num_layers} layers")
    return [bool(value) for value in listed[:num_layers]]


def _layer_types(fields: Fields, family: Family, window: int | None, rotated: list[bool]) -> list[LayerType]:
    """As `layer_types` lists them, else by the family's rule."""
    num_layers = len(rotated)
    usual = _usual_types(fields, family, window, rotated)
    listed = fields.values.get("layer_types")
    if listed is None:
        return usual
    if not isinstance(listed, list) or len(listed) != num_layers:
        raise fields.error("layer_types", f"a list of {num_layers} types, one a layer")
    for kind in listed:
        if kind not in get_args(LayerType):
            raise UnsupportedModelError(
                f"{fields.where}: layer_types: {kind!r} is not supported", hint=f"supported: {FULL}, {SLIDING}"
            )
    if family.windows in ("none", "all") and listed != usual:
        raise UnsupportedModelError(
            f"{fields.where}: layer_types differ from what {family.name} does in all layers",
            hint="offramp has no such variant of this family",
        )
    return list(listed)


def _usual_types(fields: Fields, family: Family, window: int | None, rotated: list[bool]) -> list[LayerType]:
    num_layers = len(rotated)
    match family.windows:
        case "none":
            slides = [False] * num_layers
        case "all":
            slides = [window is not None] * num_layers
        case "deep":
            first = fields.integer("max_window_layers", num_layers, low=0)
            slides = [window is not None and i >= first for i in range(num_layers)]
        case "pattern":
            period = fields.integer("sliding_window_pattern")
            slides = [(i + 1) % period != 0 for i in range(num_layers)]
        case "unrotated":
            slides = [window is not None and not turns for turns in rotated]
    return [SLIDING if slide else FULL for slide in slides]
