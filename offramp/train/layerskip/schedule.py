"""What is dropped and which exits learn, as functions of layer, step and progress.

layers = the model's layers; an exit is named by the number of layers before it, 1..layers - 1; progress runs 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Curriculum = Literal["rotational", "gradual"]
CURRICULA: tuple[Curriculum, ...] = get_args(Curriculum)
GRADUAL_END = 0.5  # progress at which the gradual curriculum has all exits on


def dropout_rates(num_layers: int, p_max: float) -> NDArray[np.float64]:
    """The chance that a sample skips each layer: none at the first, `p_max` at the last, [layers]."""
    depth = np.arange(num_layers) / max(1, num_layers - 1)
    return p_max * (2.0**depth - 1.0)


def exits_on(
    exits: Sequence[int], num_layers: int, curriculum: Curriculum, *, period: int, step: int, progress: float
) -> list[int]:
    """The exits that learn in a step: each `period`-th, rotating; or from the last one down over the first half."""
    if curriculum == "rotational":
        return list(exits[step % period :: period])
    return [layer for layer in exits if progress >= GRADUAL_END * (num_layers - layer) / num_layers]


def loss_weights(exits: Sequence[int], num_layers: int, scale: float) -> list[float]:
    """Each exit's share of the loss, rising with depth, then the last layer's; they sum to 1."""
    raw = [scale * layer for layer in exits] + [float(num_layers)]
    return [weight / sum(raw) for weight in raw]


def learning_rate(peak: float, progress: float) -> float:
    """Rises over the first 3 % and falls along a cosine to a hundredth of its peak."""
    warm = min(1.0, progress / 0.03 + 0.02)
    return peak * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
