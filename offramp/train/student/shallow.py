"""The target with some of its layers only: as a checkpoint to be written, and as weights to begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offramp.model.attention_hf import FULL, SLIDING
from offramp.model.checkpoint import CONFIG_FILE, Checkpoint
from offramp.model.config import LayerAttention, ModelConfig, layers_attention
from offramp.model.config_hf import config_from_hf
from offramp.model.families import FAMILIES
from offramp.model.metadata import Fields, read_json
from offramp.model.tensors import Matrix, Vector, WeightSource, all_roles


@dataclass(frozen=True, slots=True)
class SomeLayers:
    """A `WeightSource` whose layers are some of another's."""

    source: WeightSource
    config: ModelConfig  # of the shallow model
    layers: Sequence[int]  # of the source's, from 0

    def roles(self) -> Sequence[str]:
        return all_roles(self.config)

    def matrix(self, role: str) -> Matrix:
        return self.source.matrix(self._there(role))

    def vector(self, role: str) -> Vector:
        return self.source.vector(self._there(role))

    def _there(self, role: str) -> str:
        if not role.startswith("layers."):
            return role
        _, layer, part = role.split(".")
        return f"layers.{self.layers[int(layer)]}.{part}"


def shallow_config(config: ModelConfig, layers: Sequence[int]) -> ModelConfig:
    """That of a model of these layers."""
    attention = layers_attention([config.attention_of(i) for i in layers], config.rope, config.max_context)
    return replace(config, num_layers=len(layers), attention=attention)


def shallow_files(checkpoint: Checkpoint, layers: Sequence[int]) -> Mapping[str, str]:
    """What takes the place of the checkpoint's own files beside the weights, by name."""
    if checkpoint.kind == "gguf":
        return {}  # written from the config
    own = read_json(checkpoint.path / CONFIG_FILE)
    fields = Fields({**own.values, **_changes(checkpoint.config, own, layers)}, own.where)
    found = replace(config_from_hf(fields), tie_embeddings=checkpoint.config.tie_embeddings)
    assert found == shallow_config(checkpoint.config, layers), (found, layers)
    return {CONFIG_FILE: json.dumps(fields.values, indent=2, ensure_ascii=False) + "\n"}


def _changes(config: ModelConfig, own: Fields, layers: Sequence[int]) -> dict[str, object]:
    """Fields of `config.json` that count layers or list them."""
    family = FAMILIES[config.family]
    changes: dict[str, object] = {"num_hidden_layers": len(layers)}
    listed = own.values.get("layer_types")
    if isinstance(listed, list):
        changes["layer_types"] = [listed[i] for i in layers]
    elif family.windows not in ("none", "all"):  # by the layer's number, if nothing is listed
        slides = [_slides(config.attention_of(i), config) for i in layers]
        changes["layer_types"] = [SLIDING if slide else FULL for slide in slides]
    if family.unrotated_layers:
        changes["no_rope_layers"] = [int(config.attention_of(i).rope is not None) for i in layers]
    return changes


def _slides(attention: LayerAttention, config: ModelConfig) -> bool:
    return attention.window is not None or attention.rope not in (None, config.rope)
