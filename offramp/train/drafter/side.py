"""The side layer in torch: what `offramp/draft/side.py` describes, differentiable.

rows = places of all texts of a part, one behind the other; heads / kv = query and key-value heads.
The residual stream is f32; matrices run in the net's `dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from offramp.core import Ids
from offramp.draft.side import SideWeights
from offramp.model.config import ModelConfig
from offramp.model.quantize import dequantize, quantize_q8
from offramp.model.rope import rope_tables
from offramp.model.tensors import LayerWeights

STACKS = {"kv": ("k", "v"), "gate_up": ("gate", "up")}
"""Matrices of the layer that run as one."""


@dataclass(slots=True)
class SideNet:
    """What is trained, by name, and what it runs on: the target's embedding and rows of its head stay as they are."""

    config: ModelConfig  # of the one layer
    trained: dict[str, Tensor]  # f32
    embedding: Tensor  # [vocab, hidden] f32, as the target scales it
    head: Tensor  # [known, hidden] in `dtype`
    final_norm: Tensor  # [hidden], the target's
    dtype: torch.dtype = torch.float32
    _rope: list[Tensor] = field(default_factory=list)

    def casted(self) -> dict[str, Tensor]:
        """Leaves to run with, and to take gradients by: matrices in `dtype`."""
        return {
            name: (tensor if tensor.ndim == 1 else tensor.to(self.dtype)).detach().requires_grad_()
            for name, tensor in self.trained.items()
        }

    def first(self, w: Mapping[str, Tensor], tokens: Tensor, states: Tensor) -> Tensor:
        """The layer's input from states at the taps [rows, taps, hidden], f32 [rows, hidden]."""
        parts = torch.cat([self._embedded(tokens), states], dim=1)
        return self._joined(parts, w["first_norm"], w["first"])

    def next(self, w: Mapping[str, Tensor], tokens: Tensor, own: Tensor) -> Tensor:
        """The layer's input from its own output [rows, hidden]."""
        parts = torch.cat([self._embedded(tokens), own[:, None]], dim=1)
        return self._joined(parts, w["next_norm"], w["next"])

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm in f32, then in `dtype`."""
        return functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps).to(self.dtype)

    def heads(self, x: Tensor, matrix: Tensor, positions: Tensor | None) -> Tensor:
        """Products by head, [rows, heads or kv, head_dim]; rotated where there are positions [rows]."""
        parts = functional.linear(x, matrix).unflatten(1, (-1, self.config.head_dim))
        return parts if positions is None else self.rotated(parts, positions)

    def behind(self, w: Mapping[str, Tensor], s: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and what its heads took, [rows, hidden] f32."""
        x = s + functional.linear(attended, w["o"]).float()
        gate, up = functional.linear(self.normed(x, w["mlp_norm"]), w["gate_up"]).chunk(2, dim=1)
        return x + functional.linear(functional.silu(gate) * up, w["down"]).float()

    def weights(self, vocab_ids: Ids) -> SideWeights:
        """As the pack keeps them: matrices in q8."""
        parts: dict[str, Any] = {}
        for name, tensor in self.trained.items():
            names = STACKS.get(name, (name,))
            parts |= dict(zip(names, (part.numpy().copy() for part in tensor.detach().chunk(len(names))), strict=True))
        packed: dict[str, Any] = {
            name: quantize_q8(part, name) if part.ndim == 2 else part for name, part in parts.items()
        }
        own = {name: packed.pop(name) for name in ("first", "first_norm", "next", "next_norm", "norm")}
        return SideWeights(layer=LayerWeights(**packed), vocab_ids=vocab_ids, **own)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.embedding)[:, None]

    def _joined(self, parts: Tensor, norm: Tensor, matrix: Tensor) -> Tensor:
        units = functional.rms_norm(parts, (parts.shape[2],), None, self.config.norm_eps).flatten(1)
        return functional.linear((units * norm).to(self.dtype), matrix).float()

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """The leading pairs (i, i + pairs) of each head turned, in f32."""
        cos, sin = (table[positions][:, None] for table in self.rope(int(positions.max()) + 1))
        pairs = cos.shape[-1]
        x = x.float()
        left, right, rest = x.split([pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], dim=-1).to(self.dtype)

    def rope(self, longest: int) -> list[Tensor]:
        """cos and sin for at least so many positions."""
        if not self._rope or len(self._rope[0]) < longest:
            self._rope = [torch.from_numpy(table) for table in rope_tables(self.config.rope, 0, max(1024, longest))]
        return self._rope


def new_trained(config: ModelConfig, num_taps: int, final_norm: Tensor, seed: int) -> dict[str, Tensor]:
    """Random weights; what the layer adds to its input begins small."""
    noise = torch.Generator().manual_seed(seed)
    hidden, width = config.hidden_size, config.intermediate_size
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def matrix(out: int, into: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(out, into, generator=noise) / math.sqrt(into)

    tensors = {
        "first": matrix(hidden, (1 + num_taps) * hidden),
        "first_norm": torch.ones((1 + num_taps) * hidden),
        "next": matrix(hidden, 2 * hidden),
        "next_norm": torch.ones(2 * hidden),
        "attn_norm": torch.ones(hidden),
        "q": matrix(heads, hidden),
        "kv": matrix(2 * kv, hidden),
        "o": matrix(hidden, heads, 0.5),
        "mlp_norm": torch.ones(hidden),
        "gate_up": matrix(2 * width, hidden),
        "down": matrix(hidden, width, 0.5),
        "norm": final_norm.clone(),
    }
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


def net_of(weights: SideWeights, net: SideNet) -> SideNet:
    """Kept weights back in torch, in f32, with the values that their stored form stands for; all else as in `net`."""

    def value(name: str) -> Tensor:
        part = getattr(weights.layer, name, None)
        part = getattr(weights, name) if part is None else part
        return torch.from_numpy(np.array(part if isinstance(part, np.ndarray) else dequantize(part)))

    trained = {name: torch.cat([value(part) for part in STACKS.get(name, (name,))]) for name in net.trained}
    return SideNet(net.config, trained, net.embedding, net.head.float(), net.final_norm)
