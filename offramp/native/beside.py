"""A small executor beside a large one: a layer of its own, between the large one's embedding and head."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from offramp.model.config import ModelConfig
from offramp.model.tensors import LayerWeights, Vector
from offramp.native.executor import NativeExecutor
from offramp.native.large_pages import moved_to_large_pages
from offramp.native.packed import PackedLayer, PackedMatrix, pack_layer
from offramp.native.side import NativeSideExecutor


@dataclass(frozen=True, slots=True)
class _OneLayer:
    """`PackedWeights` of one layer between matrices that belong to others."""

    config: ModelConfig
    layer: PackedLayer
    embedding: PackedMatrix
    head: PackedMatrix
    norm: Vector

    def matrix(self, role: str) -> PackedMatrix:
        if role == "embedding":
            return self.embedding
        if role == "lm_head":
            return self.head
        matrix = getattr(self.layer, role.removeprefix("layers.0."))
        assert isinstance(matrix, PackedMatrix), role
        return replace(matrix, tiles=moved_to_large_pages(matrix.tiles))

    def vector(self, role: str) -> Vector:
        if role == "final_norm":
            return self.norm
        vector: Vector = getattr(self.layer, role.removeprefix("layers.0."))
        return vector


def side_executor(
    target: NativeExecutor, config: ModelConfig, layer: LayerWeights, norm: Vector, *, num_pages: int
) -> NativeSideExecutor:
    """One layer behind the target's embedding and before its head, with K/V of its own."""
    assert config.num_layers == 1, config.num_layers
    assert (config.hidden_size, config.vocab_size) == (target.config.hidden_size, target.config.vocab_size)
    embedding, head = target.shared
    weights = _OneLayer(config, pack_layer(layer, config.form), embedding, head, np.ascontiguousarray(norm))
    return NativeSideExecutor(weights, kv=target.kv, num_pages=num_pages, threads=target.threads, path=target.path)
