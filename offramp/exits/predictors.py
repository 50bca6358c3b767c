"""Is it worth asking the head? A small score on the hidden state.

What: a linear score, or a perceptron with one hidden layer (ReLU), on the hidden state scaled to unit root mean square;
both end in a sigmoid. The head runs only for rows that pass.
When it helps: where few rows leave at an exit point, and the head would cost as much as some layers.
Cost: a few microseconds a row.
Exactness: a score depends on the row's hidden state alone, bit for bit; what leaves by it is lossy.
Source: CALM's meta classifier (arXiv 2207.07061); SpecEE's predictors (arXiv 2504.08850).

No BLAS: its sums depend on how many rows come together. Shapes: rows, hidden, width of the inner layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.exits.measures import Scores

States = NDArray[np.float32]  # [rows, hidden]
Weights = NDArray[np.float32]

EPSILON = np.float32(1e-6)
MOST = np.float32(80.0)  # where a sigmoid in f32 has long been 0 or 1


class Predictor(Protocol):
    """Scores rows before any head runs; higher is surer, in [0, 1]. NaN passes nothing."""

    @property
    def wants_previous(self) -> bool:
        """It also looks at the hidden states one layer earlier."""
        ...

    def scores(self, hidden: States, previous: States | None) -> Scores: ...


@dataclass(frozen=True, slots=True, eq=False)
class LinearPredictor:
    """sigmoid(w1 @ x + b1), where x is the hidden state scaled to unit root mean square."""

    w1: Weights  # [1, hidden]
    b1: Weights  # [1]

    def __post_init__(self) -> None:
        assert (len(self.w1), self.b1.shape) == (1, (1,)), (self.w1.shape, self.b1.shape)

    @property
    def wants_previous(self) -> bool:
        return False

    def scores(self, hidden: States, previous: States | None) -> Scores:
        with np.errstate(invalid="ignore", over="ignore"):
            return sigmoid((unit_rms(hidden) * self.w1).sum(axis=1) + self.b1)


@dataclass(frozen=True, slots=True, eq=False)
class MlpPredictor:
    """sigmoid(w2 @ relu(w1 @ x + b1) + b2), where x is the hidden state scaled to unit root mean square."""

    w1: Weights  # [width, hidden]
    b1: Weights  # [width]
    w2: Weights  # [1, width]
    b2: Weights  # [1]

    def __post_init__(self) -> None:
        width = len(self.w1)
        assert (self.b1.shape, self.w2.shape, self.b2.shape) == ((width,), (1, width), (1,)), "shapes of one perceptron"

    @property
    def wants_previous(self) -> bool:
        return False

    def scores(self, hidden: States, previous: States | None) -> Scores:
        with np.errstate(invalid="ignore", over="ignore"):
            units = unit_rms(hidden)
            inner = np.empty((len(units), len(self.w1)), dtype=np.float32)
            for row, unit in enumerate(units):  # one at a time: the products of a row stay in the cache
                (self.w1 * unit).sum(axis=1, out=inner[row])
            inner += self.b1
            np.maximum(inner, np.float32(0.0), out=inner)
            return sigmoid((inner * self.w2).sum(axis=1) + self.b2)


def unit_rms(hidden: States) -> States:
    """Each row divided by the root of its mean square, [rows, hidden]."""
    rows = np.ascontiguousarray(hidden, dtype=np.float32)
    square = (rows * rows).sum(axis=1, keepdims=True) / np.float32(rows.shape[1])
    unit: States = rows / np.sqrt(square + EPSILON)
    return unit


def sigmoid(x: Scores) -> Scores:
    score: Scores = np.reciprocal(np.float32(1.0) + np.exp(-np.clip(x, -MOST, MOST)))
    return score
