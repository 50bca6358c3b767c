"""Weights in the three canonical formats, as plain numpy (docs/arithmetic.md gives their meaning).

out = output features, in = input features, blocks = ceil(in / 32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import ModelConfig

BLOCK = 32

Vector = NDArray[np.float32]  # [features]


@dataclass(frozen=True, slots=True)
class F32Matrix:
    """Plain f32 weights."""

    values: NDArray[np.float32]  # [out, in]

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]


@dataclass(frozen=True, slots=True)
class Q8Matrix:
    """int8 blocks of 32 with one f16 scale; padded columns hold 0."""

    quants: NDArray[np.int8]  # [out, blocks * 32]
    scales: NDArray[np.float16]  # [out, blocks]
    in_features: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.quants.shape[0], self.in_features


@dataclass(frozen=True, slots=True)
class Q4Matrix:
    """4-bit codes in blocks of 32 with f16 scale and minimum; padded columns hold code 0."""

    codes: NDArray[np.uint8]  # [out, blocks * 32], values 0..15
    scales: NDArray[np.float16]  # [out, blocks]
    minimums: NDArray[np.float16]  # [out, blocks]
    in_features: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.in_features


Matrix = F32Matrix | Q8Matrix | Q4Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One transformer layer. q, k, v rows are in half-split rope order (GGUF's permutation already undone)."""

    attn_norm: Vector  # [hidden]
    q: Matrix  # [heads * head_dim, hidden]
    k: Matrix  # [kv_heads * head_dim, hidden]
    v: Matrix  # [kv_heads * head_dim, hidden]
    o: Matrix  # [hidden, heads * head_dim]
    mlp_norm: Vector  # [hidden]
    gate: Matrix  # [intermediate, hidden]
    up: Matrix  # [intermediate, hidden]
    down: Matrix  # [hidden, intermediate]


class WeightSource(Protocol):
    """Where an executor takes its weights from, one tensor at a time.

    Roles: `embedding`, `layers.{i}.{attn_norm,q,k,v,o,mlp_norm,gate,up,down}`, `final_norm`, and `lm_head`
    unless the head is tied to the embedding. Norms are vectors, everything else a matrix.
    """

    @property
    def config(self) -> ModelConfig: ...

    def roles(self) -> Sequence[str]: ...

    def matrix(self, role: str) -> Matrix: ...

    def vector(self, role: str) -> Vector: ...


LAYER_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
LAYER_VECTORS = ("attn_norm", "mlp_norm")


def all_roles(config: ModelConfig) -> list[str]:
    """Every role of a model with this config, in storage order."""
    layers = [
        f"layers.{i}.{name}"
        for i in range(config.num_layers)
        for name in ("attn_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down")
    ]
    head = [] if config.tie_embeddings else ["lm_head"]
    return ["embedding", *layers, "final_norm", *head]


def layer_weights(source: WeightSource, index: int) -> LayerWeights:
    """The weights of one layer, all materialized."""
    name = f"layers.{index}."
    matrices = {part: source.matrix(name + part) for part in LAYER_MATRICES}
    vectors = {part: source.vector(name + part) for part in LAYER_VECTORS}
    return LayerWeights(**matrices, **vectors)
