"""A short name for the arithmetic that a config stands for: equal names, equal arithmetic for the same weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from offramp.model.config import LongRopeScaling, ModelConfig, RopeConfig
from offramp.model.plain import to_plain

DIGITS = 16


def config_identity(config: ModelConfig) -> str:
    """Hexadecimal digits. What context is served counts only where it chooses between a longrope's lists."""
    layers = tuple(replace(layer, rope=layer.rope and _plain_context(layer.rope)) for layer in config.attention)
    alike = replace(config, rope=_plain_context(config.rope), attention=layers)
    return hashlib.sha256(json.dumps(to_plain(alike), sort_keys=True).encode()).hexdigest()[:DIGITS]


def _plain_context(rope: RopeConfig) -> RopeConfig:
    """The same rotation for whichever context is served by the same list."""
    scaling = rope.scaling
    if not isinstance(scaling, LongRopeScaling):
        return rope
    return rope.for_context(scaling.original_context + (scaling.context > scaling.original_context))
