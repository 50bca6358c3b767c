"""An adapter head in torch: what `HeadWeights` describes, differentiable.

rows, hidden, rank, known = tokens of the head's vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from offramp.core import Ids
from offramp.model.heads import HeadWeights
from offramp.model.quantize import dequantize, quantize_q8


@dataclass(slots=True)
class TrainedHead:
    """The tensors of one exit's head; the matrix behind them is the model's own and stays as it is."""

    input_norm: Tensor  # [hidden]
    down: Tensor  # [rank, hidden]
    up: Tensor  # [hidden, rank]
    norm: Tensor  # [hidden]
    epsilon: float

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {"input_norm": self.input_norm, "down": self.down, "up": self.up, "norm": self.norm}

    def logits(self, hidden: Tensor, matrix: Tensor) -> Tensor:
        """[rows, known] f32, for hidden states [rows, hidden] f32 and the model's matrix [known, hidden]."""
        width = (hidden.shape[-1],)
        inner = functional.silu(functional.rms_norm(hidden, width, self.input_norm, self.epsilon) @ self.down.t())
        normed = functional.rms_norm(hidden + inner @ self.up.t(), width, self.norm, self.epsilon)
        return (normed.to(matrix.dtype) @ matrix.t()).float()

    def weights(self, vocab_ids: Ids) -> HeadWeights:
        """As the pack keeps them: matrices in q8."""
        values = {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}
        return HeadWeights(
            norm=values["norm"].copy(),
            input_norm=values["input_norm"].copy(),
            down=quantize_q8(values["down"], "down"),
            up=quantize_q8(values["up"], "up"),
            vocab_ids=vocab_ids,
        )


def new_head(final_norm: Tensor, rank: int, epsilon: float, seed: int) -> TrainedHead:
    """A head that says what the model's own head would: its adapter adds nothing yet."""
    noise = torch.Generator().manual_seed(seed)
    hidden = final_norm.numel()
    return TrainedHead(
        input_norm=torch.ones(hidden).requires_grad_(),
        down=(torch.randn(rank, hidden, generator=noise) / math.sqrt(hidden)).requires_grad_(),
        up=torch.zeros(hidden, rank).requires_grad_(),
        norm=final_norm.clone().requires_grad_(),
        epsilon=epsilon,
    )


def head_of(weights: HeadWeights, epsilon: float) -> TrainedHead:
    """A kept head back in torch, with the values that its stored form stands for."""
    assert weights.norm is not None
    assert weights.input_norm is not None
    assert weights.down is not None
    assert weights.up is not None
    return TrainedHead(
        input_norm=torch.tensor(weights.input_norm),
        down=torch.tensor(dequantize(weights.down)),
        up=torch.tensor(dequantize(weights.up)),
        norm=torch.tensor(weights.norm),
        epsilon=epsilon,
    )
