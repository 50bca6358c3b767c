"""One weight a feature.

What: logistic regression on (1 + gain) / 2 with a penalty on the weights' length. It is solved in the span of the
training prompts, where the best weights lie whatever the number of features.
When it helps: the first to try; with a few hundred prompts little else is learnt.
Cost: one product.
Exactness: routing is lossy by design. The fit is the one optimum, to the rounding of f32.
Source: textbook; Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.kind import Embeddings, Examples, Settings, Shape
from offramp.collaborate.router.standard import Standard, sigmoid
from offramp.collaborate.threshold import Scores, bounded
from offramp.model.pack_tensors import StoredParts

NEWTON_STEPS = 60
SMALL_STEP = 1e-10
FLAT = 1e-10
"""Directions with less than this part of the largest spread are left out."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LinearRouter:
    """Weights over standardized features."""

    standard: Standard
    weights: NDArray[np.float32]  # [features]
    bias: float

    def scores(self, embeddings: Embeddings) -> Scores:
        return bounded(sigmoid(self.standard.apply(embeddings) @ self.weights.astype(np.float64) + self.bias))

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        bias = np.array([self.bias], np.float32)
        return {**self.standard.tensors(), "weights": self.weights, "bias": bias}


def fit_linear(examples: Examples, settings: Settings, seed: int) -> LinearRouter:
    """`penalty` is that on half the weights' squared length, the loss being a sum over prompts."""
    embeddings, wanted = examples.compared()
    standard = Standard.of(embeddings)
    weights, bias = logistic(standard.apply(embeddings), wanted, settings["penalty"])
    return LinearRouter(standard, weights.astype(np.float32), float(np.float32(bias)))


def read_linear(parts: StoredParts, shape: Shape) -> LinearRouter:
    standard = Standard.read(parts, shape.features)
    return LinearRouter(standard, parts.vector("weights", shape.features), float(parts.vector("bias", 1)[0]))


def logistic(x: Floats, wanted: Floats, penalty: float) -> tuple[Floats, float]:
    """Weights [features] and bias of least cross-entropy plus penalty; `wanted` [prompts] lies in [0, 1].

    The bias has no penalty, so `wanted` may not be all 0 or all 1.
    """
    assert 0 < wanted.mean() < 1, "one class"
    assert penalty > 0
    left, spread, right = np.linalg.svd(x, full_matrices=False)
    kept = spread > FLAT * spread.max(initial=0.0)
    inputs = np.hstack([left[:, kept] * spread[kept], np.ones((len(x), 1))])
    penalties = np.append(np.full(int(kept.sum()), penalty), 0.0)
    solution = _newton(inputs, wanted, penalties)
    return right[kept].T @ solution[:-1], float(solution[-1])


def _newton(inputs: Floats, wanted: Floats, penalties: Floats) -> Floats:
    solution = np.zeros(inputs.shape[1])
    solution[-1] = np.log(wanted.mean() / (1 - wanted.mean()))
    value = _objective(inputs, wanted, penalties, solution)
    for _ in range(NEWTON_STEPS):
        chances = sigmoid(inputs @ solution)
        slope = inputs.T @ (chances - wanted) + penalties * solution
        bend = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + np.diag(penalties)
        step = np.linalg.solve(bend, slope)
        size = 1.0
        while (new := _objective(inputs, wanted, penalties, solution - size * step)) > value and size > SMALL_STEP:
            size /= 2
        solution, value = solution - size * step, new
        if np.abs(step).max() < SMALL_STEP:
            break
    return solution


def _objective(inputs: Floats, wanted: Floats, penalties: Floats, solution: Floats) -> float:
    values = inputs @ solution
    entropy = np.logaddexp(0.0, values) - wanted * values
    return float(entropy.sum() + (penalties * solution**2).sum() / 2)
