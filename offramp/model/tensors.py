"""Weights in the three canonical formats, as plain numpy (docs/arithmetic.md gives their meaning).

out = output features, in = input features, blocks = ceil(in / 32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import LayerForm, ModelConfig

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
    q_bias: Vector | None = None  # [heads * head_dim]
    k_bias: Vector | None = None  # [kv_heads * head_dim]
    v_bias: Vector | None = None  # [kv_heads * head_dim]
    q_norm: Vector | None = None  # [head_dim], the same for each head
    k_norm: Vector | None = None  # [head_dim]
    post_attn_norm: Vector | None = None  # [hidden]
    post_mlp_norm: Vector | None = None  # [hidden]


class WeightSource(Protocol):
    """Where an executor takes its weights from, one tensor at a time.

    Roles: `embedding`, `layers.{i}.{attn_norm,q,k,v,o,mlp_norm,gate,up,down}` and what else the config's `LayerForm`
    calls for (the names of `LayerWeights`), `final_norm`, and `lm_head` unless the head is tied to the embedding. Norms
    and biases are vectors, everything else a matrix.
    """

    @property
    def config(self) -> ModelConfig: ...

    def roles(self) -> Sequence[str]: ...

    def matrix(self, role: str) -> Matrix: ...

    def vector(self, role: str) -> Vector: ...


WeightFormat = Literal["auto", "f32", "q8", "q4"]
"""What matrices become: `auto` keeps q8 and q4 as stored and makes everything else q8."""

LAYER_PARTS: Mapping[str, str | None] = {
    "attn_norm": None,
    "q": None,
    "q_bias": "qkv_bias",
    "q_norm": "qk_norm",
    "k": None,
    "k_bias": "qkv_bias",
    "k_norm": "qk_norm",
    "v": None,
    "v_bias": "qkv_bias",
    "o": None,
    "post_attn_norm": "post_norms",
    "mlp_norm": None,
    "gate": None,
    "up": None,
    "down": None,
    "post_mlp_norm": "post_norms",
}
"""Parts of a layer in storage order, each with the field of `LayerForm` that calls for it; None: every layer has it."""


def layer_parts(form: LayerForm) -> list[str]:
    """The parts of one layer, in storage order."""
    return [part for part, needs in LAYER_PARTS.items() if needs is None or getattr(form, needs)]


def all_roles(config: ModelConfig) -> list[str]:
    """Every role of a model with this config, in storage order."""
    parts = layer_parts(config.form)
    layers = [f"layers.{i}.{part}" for i in range(config.num_layers) for part in parts]
    head = [] if config.tie_embeddings else ["lm_head"]
    return ["embedding", *layers, "final_norm", *head]


def is_norm(role: str) -> bool:
    """Whether the role holds the weights of an RMSNorm."""
    return role.endswith("norm")


def is_vector(role: str) -> bool:
    """Whether the role holds a vector rather than a matrix."""
    return is_norm(role) or role.endswith("_bias")


def role_shape(config: ModelConfig, role: str) -> tuple[int, ...]:
    """The shape of a role's tensor: (features,) of a vector, (out, in) of a matrix."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
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
        case "down":
            return (hidden, intermediate)
        case "q_bias":
            return (heads,)
        case "k_bias" | "v_bias":
            return (kv_heads,)
        case "q_norm" | "k_norm":
            return (config.head_dim,)
        case part:
            assert is_norm(part), f"unknown role {role!r}"
            return (hidden,)


def layer_weights(source: WeightSource, index: int) -> LayerWeights:
    """The weights of one layer, all materialized."""
    parts: dict[str, Any] = {}
    for part in layer_parts(source.config.form):
        role = f"layers.{index}.{part}"
        parts[part] = source.vector(role) if is_vector(role) else source.matrix(role)
    return LayerWeights(**parts)
