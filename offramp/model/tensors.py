"""Weights in the three canonical formats, as plain numpy (docs/arithmetic.md gives their meaning).

out = output features, in = input features, blocks = ceil(in / 32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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


WeightFormat = Literal["auto", "f32", "q8", "q4"]
"""What matrices become: `auto` keeps q8 and q4 as stored and makes everything else q8."""

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


def is_vector(role: str) -> bool:
    """Whether the role holds a vector rather than a matrix."""
    return role == "final_norm" or role.rpartition(".")[2] in LAYER_VECTORS


def role_shape(config: ModelConfig, role: str) -> tuple[int, ...]:
    """The shape of a role's tensor: (features,) of a vector, (out, in) of a matrix."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    if is_vector(role):
        return (hidden,)
    match role.rpartition(".")[2]:
        case "embedding" | "lm_head":
            return (config.vocab_size, hidden)
        case "q":
            return (heads, hidden)
        case "k" | "v":
            return (kv_heads, hidden)
        case "o":
            return (hidden, heads)
        case "gate" | "up":
            return (intermediate, hidden)
        case part:
            assert part == "down", f"unknown role {role!r}"
            return (hidden, intermediate)


def layer_weights(source: WeightSource, index: int) -> LayerWeights:
    """The weights of one layer, all materialized."""
    name = f"layers.{index}."
    return LayerWeights(
        attn_norm=source.vector(name + "attn_norm"),
        q=source.matrix(name + "q"),
        k=source.matrix(name + "k"),
        v=source.matrix(name + "v"),
        o=source.matrix(name + "o"),
        mlp_norm=source.vector(name + "mlp_norm"),
        gate=source.matrix(name + "gate"),
        up=source.matrix(name + "up"),
        down=source.matrix(name + "down"),
    )
