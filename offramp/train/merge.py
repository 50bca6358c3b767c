"""Between a decoder and the roles of its source: trained matrices go back where they came from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.model.config import ModelConfig
from offramp.model.quantize import dequantize
from offramp.model.tensors import WeightSource, is_norm, is_vector, role_shape
from offramp.train.adapter import Adapter
from offramp.train.decoder import STACKS, Decoder, norm_tensors


def take_changes(decoder: Decoder, adapter: Adapter) -> None:
    """Put an adapter's changes into a decoder's matrices, in place of those that were being trained."""
    with torch.no_grad():
        for i, layer in enumerate(decoder.layers):
            for stack, projection in layer.projections.items():
                weight = projection.weight.float() + torch.from_numpy(adapter.change(i, stack))
                projection.weight, projection.change = weight.to(decoder.dtype), None
        for role, weight in norm_tensors(decoder):
            weight.copy_(torch.from_numpy(adapter.norm(role)))


def merged_weights(source: WeightSource, adapter: Adapter) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every weight of the changed model by role; `source` is the f32 one that was trained."""
    changes: dict[str, NDArray[np.float32]] = {}
    for role in source.roles():
        if is_norm(role):
            yield role, adapter.norm(role)
        elif is_vector(role):
            yield role, source.vector(role)
        elif role in ("embedding", "lm_head"):
            yield role, dequantize(source.matrix(role))
        else:
            if role not in changes:  # the first of those that run as one
                changes |= _changes(source.config, adapter, role)
            yield role, dequantize(source.matrix(role)) + changes.pop(role)


def _changes(config: ModelConfig, adapter: Adapter, role: str) -> dict[str, NDArray[np.float32]]:
    """What is added to the matrices that run as one with `role`, by role."""
    _, layer, part = role.split(".")
    stack = next(name for name, parts in STACKS.items() if part in parts)
    heights = stacked_heights(config, int(layer), stack)
    ends = np.cumsum(list(heights.values()))[:-1]
    return dict(zip(heights, np.split(adapter.change(int(layer), stack), ends), strict=True))


def trained_weights(source: WeightSource, decoder: Decoder) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every weight of a decoder whose matrices were trained themselves, by role; `source` is what it was read from."""
    trained = dict(norm_tensors(decoder)) | _layer_tensors(decoder)
    for role in source.roles():
        if role in trained:
            yield role, trained[role].detach().numpy()
        elif is_vector(role):
            yield role, source.vector(role)
        else:
            matrix = decoder.embedding if role == "embedding" else decoder.lm_head
            assert matrix is not None, role
            yield role, matrix.numpy()


def stacked_heights(config: ModelConfig, layer: int, stack: str) -> dict[str, int]:
    """Roles of the matrices that run as one, in their order, with their rows."""
    roles = [f"layers.{layer}.{part}" for part in STACKS[stack]]
    return {role: role_shape(config, role)[0] for role in roles}


def _layer_tensors(decoder: Decoder) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for i, layer in enumerate(decoder.layers):
        for stack, projection in layer.projections.items():
            heights = stacked_heights(decoder.config, i, stack)
            tensors |= dict(zip(heights, projection.weight.split(list(heights.values())), strict=True))
            if projection.bias is not None:
                biases = projection.bias.split(list(heights.values()))
                tensors |= {f"{role}_bias": bias for role, bias in zip(heights, biases, strict=True)}
    return tensors
