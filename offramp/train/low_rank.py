"""What is trained of a model: low-rank changes of its matrices and its norms, or everything but the heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from offramp.train.decoder import Decoder, LowRank, norm_tensors

SCALE = 2.0
"""What the product of a change's factors is multiplied by."""


def train_low_rank(decoder: Decoder, rank: int, seed: int) -> dict[str, Tensor]:
    """Give every matrix of the layers a change of this rank, nothing at first; returns what to train, by name."""
    noise = torch.Generator().manual_seed(seed)
    trained: dict[str, Tensor] = {}
    for i, layer in enumerate(decoder.layers):
        for name, projection in layer.projections.items():
            num_out, num_in = projection.weight.shape
            a = torch.randn(rank, num_in, generator=noise) / math.sqrt(num_in)
            projection.change = LowRank(a.requires_grad_(), torch.zeros(num_out, rank).requires_grad_(), SCALE)
            trained[f"layers.{i}.{name}.a"] = projection.change.a
            trained[f"layers.{i}.{name}.b"] = projection.change.b
    return trained | _trained_norms(decoder)


def train_whole(decoder: Decoder) -> dict[str, Tensor]:
    """Train all matrices and norms of the layers, in f32; embeddings and head stay as they are."""
    trained: dict[str, Tensor] = {}
    for i, layer in enumerate(decoder.layers):
        for name, projection in layer.projections.items():
            projection.weight = projection.weight.float().requires_grad_()
            trained[f"layers.{i}.{name}.weight"] = projection.weight
            if projection.bias is not None:
                trained[f"layers.{i}.{name}.bias"] = projection.bias.requires_grad_()
    return trained | _trained_norms(decoder)


def _trained_norms(decoder: Decoder) -> dict[str, Tensor]:
    return {name: weight.requires_grad_() for name, weight in norm_tensors(decoder)}
