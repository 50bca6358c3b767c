"""Training a predictor: will the head say what full depth says? Class-balanced, on prompts that no head learned from.

rows, hidden, width as in offramp/exits/predictors.py, whose arithmetic this follows.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from offramp.exits.pack_config import PredictorKind
from offramp.exits.predictors import LinearPredictor, MlpPredictor, unit_rms

EPOCHS, BATCH_ROWS, PATIENCE = 60, 512, 6
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 0.05

Flags = NDArray[np.bool_]  # [rows]


def fit_predictor(
    kind: PredictorKind,
    width: int,
    hidden: NDArray[np.float16],
    agreed: Flags,
    other_hidden: NDArray[np.float16],
    other_agreed: Flags,
    seed: int,
) -> LinearPredictor | MlpPredictor:
    """The predictor with the least balanced loss on the other rows, as it is kept (matrices in f16)."""
    noise = torch.Generator().manual_seed(seed)
    tensors = _new_tensors(kind, width, hidden.shape[1], noise)
    optimizer = torch.optim.AdamW(tensors.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    inputs, labels, weights = _prepared(hidden, agreed)
    other = _prepared(other_hidden, other_agreed)
    best, best_loss, worse = {name: t.detach().clone() for name, t in tensors.items()}, math.inf, 0
    for _ in range(EPOCHS):
        for some in torch.randperm(len(labels), generator=noise).split(BATCH_ROWS):
            loss = functional.binary_cross_entropy_with_logits(
                _scores(tensors, inputs[some]), labels[some], weights[some]
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            found = float(functional.binary_cross_entropy_with_logits(_scores(tensors, other[0]), *other[1:]))
        if found < best_loss:
            best, best_loss, worse = {name: t.detach().clone() for name, t in tensors.items()}, found, 0
        else:
            worse += 1
        if worse > PATIENCE:
            break
    return _kept(kind, best)


def _new_tensors(kind: PredictorKind, width: int, hidden: int, noise: torch.Generator) -> dict[str, Tensor]:
    if kind == "linear":
        return {"w1": torch.zeros(1, hidden).requires_grad_(), "b1": torch.zeros(1).requires_grad_()}
    return {
        "w1": (torch.randn(width, hidden, generator=noise) / math.sqrt(hidden)).requires_grad_(),
        "b1": torch.zeros(width).requires_grad_(),
        "w2": (torch.randn(1, width, generator=noise) / math.sqrt(width)).requires_grad_(),
        "b2": torch.zeros(1).requires_grad_(),
    }


def _scores(tensors: dict[str, Tensor], units: Tensor) -> Tensor:
    """Before the sigmoid, [rows]."""
    inner = units @ tensors["w1"].t() + tensors["b1"]
    if "w2" in tensors:
        inner = functional.relu(inner) @ tensors["w2"].t() + tensors["b2"]
    return inner[:, 0]


def _prepared(hidden: NDArray[np.float16], agreed: Flags) -> tuple[Tensor, Tensor, Tensor]:
    """Unit hidden states, labels, and weights with which both labels count the same."""
    share = float(np.clip(agreed.mean(), 1e-3, 1 - 1e-3))
    weights = np.where(agreed, 0.5 / share, 0.5 / (1 - share)).astype(np.float32)
    units = unit_rms(hidden.astype(np.float32))
    return torch.from_numpy(units), torch.from_numpy(agreed.astype(np.float32)), torch.from_numpy(weights)


def _kept(kind: PredictorKind, tensors: dict[str, Tensor]) -> LinearPredictor | MlpPredictor:
    values = {name: tensor.numpy() for name, tensor in tensors.items()}
    halved = {name: v.astype(np.float16).astype(np.float32) if v.ndim == 2 else v for name, v in values.items()}
    return LinearPredictor(**halved) if kind == "linear" else MlpPredictor(**halved)
