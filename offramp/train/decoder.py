"""The model in torch: the same layers as the executor's, differentiable, over batches of any layout.

rows = tokens of the batch as it lays them out, heads / kv = query and key-value heads.
In a padded batch: prefix = tokens that all samples begin with (run once), samples = sequences of the batch, len =
tokens of the longest behind the prefix, rows = prefix + samples * len.
The residual stream is f32; matrices run in the decoder's `dtype`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.quantize import dequantize
from offramp.model.rope import rope_tables
from offramp.model.tensors import WeightSource

STACKS = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
"""Matrices of a layer as they run: those with the same input are one."""
NORMS = ("attn_norm", "q_norm", "k_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm")


@dataclass(slots=True)
class LowRank:
    """A trained change of a matrix: scale * b @ a."""

    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank]
    scale: float


@dataclass(slots=True)
class Projection:
    """A matrix, its bias where the family has one, and its low-rank change where it is trained that way."""

    weight: Tensor  # [out, in]
    bias: Tensor | None = None  # [out]
    change: LowRank | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = functional.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))
        if self.change is None:
            return y
        inner = functional.linear(x, self.change.a.to(x.dtype))
        return torch.addmm(y, inner, self.change.b.to(x.dtype).t(), alpha=self.change.scale)


@dataclass(slots=True)
class Layer:
    """One transformer layer."""

    projections: dict[str, Projection]  # the keys of STACKS
    norms: dict[str, Tensor]  # those of NORMS that the family has


class RowBatch(Protocol):
    """How the tokens of some texts lie as rows, and which of them see which."""

    @property
    def ids(self) -> Tensor:
        """[rows]"""
        ...

    @property
    def positions(self) -> Tensor:
        """Of each row in its text, [rows]."""
        ...

    @property
    def target_rows(self) -> Tensor:
        """The rows that have a target, rising."""
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float) -> Tensor:
        """Causal attention within each text, [heads, rows, head_dim] each."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples padded at their ends to one length; causal attention never looks at padding."""

    prefix: Tensor  # [prefix] ids, perhaps none
    tokens: Tensor  # [samples, len] ids
    targets: Tensor  # [samples, len] the id that each token should yield; -1: none asked for

    @property
    def num_rows(self) -> int:
        return int(self.prefix.numel() + self.tokens.numel())

    @property
    def ids(self) -> Tensor:
        """[rows]"""
        return torch.cat([self.prefix, self.tokens.reshape(-1)])

    @property
    def positions(self) -> Tensor:
        """[rows]"""
        start, (samples, length) = self.prefix.numel(), self.tokens.shape
        behind = torch.arange(start, start + length).repeat(samples)
        return torch.cat([torch.arange(start), behind])

    @property
    def target_rows(self) -> Tensor:
        """The rows that have a target, rising."""
        return self.prefix.numel() + (self.targets.reshape(-1) >= 0).nonzero()[:, 0]

    @property
    def target_ids(self) -> Tensor:
        """The targets of those rows."""
        flat = self.targets.reshape(-1)
        return flat[flat >= 0]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float) -> Tensor:
        """Attention of the prefix to itself, and of each sample to the prefix and itself: [heads, rows, head_dim]."""
        start, (samples, length) = self.prefix.numel(), self.tokens.shape

        def behind(part: Tensor) -> Tensor:
            return part[:, start:].unflatten(1, (samples, length)).transpose(0, 1)  # [samples, heads, len, head_dim]

        def whole(part: Tensor) -> Tensor:
            shared = part[None, :, :start].expand(samples, -1, -1, -1)
            return torch.cat([shared, behind(part)], dim=2)  # [samples, heads, prefix + len, head_dim]

        seen = visible(start + length, window)
        own = functional.scaled_dot_product_attention(
            behind(q), whole(k), whole(v), attn_mask=seen[start:], scale=scale
        )
        own = own.transpose(0, 1).flatten(1, 2)
        if start == 0:
            return own
        first = functional.scaled_dot_product_attention(
            q[None, :, :start], k[None, :, :start], v[None, :, :start], attn_mask=seen[:start, :start], scale=scale
        )
        return torch.cat([first[0], own], dim=1)


@dataclass(slots=True)
class Decoder:
    """A decoder-only transformer whose tensors may be trained."""

    config: ModelConfig
    embedding: Tensor  # [vocab, hidden] f32
    lm_head: Tensor | None  # [vocab, hidden] f32; None: tied
    final_norm: Tensor  # [hidden]
    layers: list[Layer]
    dtype: torch.dtype = torch.float32
    _ropes: dict[RopeConfig, tuple[Tensor, Tensor]] = field(default_factory=dict)  # [positions, pairs] each

    def embed(self, batch: RowBatch) -> Tensor:
        """[rows, hidden] f32"""
        return functional.embedding(batch.ids, self.embedding) * self.config.embedding_scale

    def run_layer(self, index: int, x: Tensor, batch: RowBatch) -> Tensor:
        """Hidden states behind layer `index`, [rows, hidden] f32."""
        layer, form = self.layers[index], self.config.form
        attended = layer.projections["o"](self._attend(index, self._normed(layer, "attn_norm", x), batch)).float()
        x = x + (self.norm(attended, layer.norms["post_attn_norm"]) if form.post_norms else attended)
        gate, up = layer.projections["gate_up"](self._normed(layer, "mlp_norm", x)).chunk(2, dim=1)
        active = functional.silu(gate) if form.activation == "silu" else functional.gelu(gate, approximate="tanh")
        fed = layer.projections["down"](active * up).float()
        return x + (self.norm(fed, layer.norms["post_mlp_norm"]) if form.post_norms else fed)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm in f32."""
        return functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)

    def states_at(self, batch: RowBatch, points: Collection[int]) -> dict[int, Tensor]:
        """What a head reads after so many layers, at rows with a target: [targets, hidden] in the decoder's dtype."""
        x, states = self.embed(batch), {}
        for index in range(self.config.num_layers):
            x = self.run_layer(index, x, batch)
            if index + 1 in points:
                states[index + 1] = self.norm(x[batch.target_rows], self.final_norm).to(self.dtype)
        return states

    def head_rows(self, vocab_ids: Tensor | None = None) -> Tensor:
        """The head's matrix, or its rows for some ids, in the decoder's dtype."""
        matrix = self.embedding if self.lm_head is None else self.lm_head
        return (matrix if vocab_ids is None else matrix[vocab_ids]).to(self.dtype)

    def _normed(self, layer: Layer, name: str, x: Tensor) -> Tensor:
        return self.norm(x, layer.norms[name]).to(self.dtype)

    def _attend(self, index: int, x: Tensor, batch: RowBatch) -> Tensor:
        """What the heads take from the context, [rows, heads * head_dim]."""
        config, attention = self.config, self.config.attention_of(index)
        heads, kv, width = config.num_heads, config.num_kv_heads, config.head_dim
        projected = self.layers[index].projections["qkv"](x).view(len(x), heads + 2 * kv, width)
        q, k, v = projected.split([heads, kv, kv], dim=1)  # [rows, heads or kv, head_dim]
        if config.form.qk_norm:
            norms = self.layers[index].norms
            q, k = self.norm(q.float(), norms["q_norm"]), self.norm(k.float(), norms["k_norm"])
        if attention.rope is not None:
            cos, sin = self._rope(attention.rope, batch.positions)
            q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        q, k, v = (part.to(self.dtype).transpose(0, 1) for part in (q, k, v))  # [heads or kv, rows, head_dim]
        k, v = (part.repeat_interleave(heads // kv, dim=0) for part in (k, v))
        attended = batch.attend(q, k, v, attention.window, config.attention_scale)
        return attended.transpose(0, 1).reshape(len(x), -1)

    def _rope(self, rope: RopeConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, each [rows, 1, pairs]."""
        known = self._ropes.get(rope)
        longest = int(positions.max()) + 1
        if known is None or len(known[0]) < longest:
            cos, sin = rope_tables(rope, 0, longest)
            known = self._ropes[rope] = torch.from_numpy(cos), torch.from_numpy(sin)
        return known[0][positions, None], known[1][positions, None]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The leading pairs (i, i + pairs) of each head turned, in f32."""
    pairs = cos.shape[-1]
    x = x.float()
    left, right, rest = x.split([pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], dim=-1)


def visible(stop: int, window: int | None) -> Tensor:
    """Which positions 0..stop-1 each of them sees, [stop, stop] bool."""
    distance = torch.arange(stop)[:, None] - torch.arange(stop)[None, :]
    behind: Tensor = distance >= 0
    return behind if window is None else behind & (distance < window)


def read_decoder(source: WeightSource, dtype: torch.dtype = torch.float32) -> Decoder:
    """The model of a weight source: matrices of its layers in `dtype`, all else f32."""
    config = source.config

    def matrix(role: str) -> Tensor:
        return torch.from_numpy(dequantize(source.matrix(role)).copy())

    def vector(role: str) -> Tensor:
        return torch.from_numpy(source.vector(role).copy())

    def layer(i: int) -> Layer:
        projections = {}
        for name, parts in STACKS.items():
            weight = torch.cat([matrix(f"layers.{i}.{part}") for part in parts]).to(dtype)
            biased = name == "qkv" and config.form.qkv_bias
            bias = torch.cat([vector(f"layers.{i}.{part}_bias") for part in parts]) if biased else None
            projections[name] = Projection(weight, bias)
        return Layer(projections, {name: vector(f"layers.{i}.{name}") for name in NORMS if _has(config, name)})

    return Decoder(
        config=config,
        embedding=matrix("embedding"),
        lm_head=None if config.tie_embeddings else matrix("lm_head"),
        final_norm=vector("final_norm"),
        layers=[layer(i) for i in range(config.num_layers)],
        dtype=dtype,
    )


def _has(config: ModelConfig, norm: str) -> bool:
    if norm in ("q_norm", "k_norm"):
        return config.form.qk_norm
    return config.form.post_norms or not norm.startswith("post")


def norm_tensors(decoder: Decoder) -> Iterator[tuple[str, Tensor]]:
    """Every norm's weights by role."""
    for i, layer in enumerate(decoder.layers):
        yield from ((f"layers.{i}.{name}", weight) for name, weight in layer.norms.items())
    yield "final_norm", decoder.final_norm
