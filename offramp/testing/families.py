"""Toy models of every family, with the windows and rotations that its checkpoints have."""

from __future__ import annotations

from offramp.model.config import LayerAttention, ModelConfig, RopeConfig
from offramp.model.families import FAMILIES, UNROTATED_EVERY
from offramp.testing.toy import toy_config

GLOBAL, LOCAL = RopeConfig(base=1e6, rotary_dim=16), RopeConfig(base=1e4, rotary_dim=16)
GLOBAL_EVERY = 6


def family_config(name: str, *, window: int | None = 24, num_layers: int = 7, **overrides: object) -> ModelConfig:
    """A small config of the family. `window` holds in the layers that may have one; None is none anywhere.

    `overrides` as of `toy_config`.
    """
    family = FAMILIES[name]
    scale = 8.0 if family.scaled_embedding else 1.0
    values: dict[str, object] = {
        "family": name,
        "form": family.form,
        "num_layers": num_layers,
        "norm_eps": 2.0**-17,  # the same as f32
        "rope": GLOBAL,
        "embedding_scale": scale,
        "attention": _attention(name, window, num_layers),
    }
    return toy_config(**{**values, **overrides})


def _attention(name: str, window: int | None, num_layers: int) -> tuple[LayerAttention, ...]:
    plain, near = LayerAttention(rope=GLOBAL), LayerAttention(rope=GLOBAL, window=window)
    match FAMILIES[name].windows:
        case "none":
            layers = [plain] * num_layers
        case "all":
            layers = [near] * num_layers
        case "deep":
            layers = [plain if i < num_layers // 2 else near for i in range(num_layers)]
        case "pattern":
            local = LayerAttention(rope=LOCAL, window=window)
            layers = [local if (i + 1) % GLOBAL_EVERY else plain for i in range(num_layers)]
        case "unrotated":
            unrotated = LayerAttention(rope=None, window=window)
            layers = [plain if (i + 1) % UNROTATED_EVERY else unrotated for i in range(num_layers)]
    return () if all(layer == plain for layer in layers) else tuple(layers)
