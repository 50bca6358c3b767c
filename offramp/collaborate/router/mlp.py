"""A small network.

What: one hidden layer over the directions in which training prompts differ most, its last layer as in `linear`.
When it helps: thousands of prompts; with hundreds it says what `linear` says, less steadily.
Cost: two products.
Exactness: routing is lossy by design. A fit is repeatable by its seed.
Source: textbook; AdamW on the whole data at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.adam import Adam, Parameters
from offramp.collaborate.router.kind import Embeddings, Examples, Settings, Shape
from offramp.collaborate.router.standard import Standard, sigmoid
from offramp.collaborate.threshold import Scores, bounded
from offramp.model.pack_tensors import StoredParts

HIDDEN = 32
DIRECTIONS = 64
STEPS = 300
RATE = 3e-3

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MlpRouter:
    """Directions are folded into the first layer."""

    standard: Standard
    first: NDArray[np.float32]  # [HIDDEN, features]
    first_bias: NDArray[np.float32]  # [HIDDEN]
    last: NDArray[np.float32]  # [HIDDEN]
    last_bias: float

    def scores(self, embeddings: Embeddings) -> Scores:
        inner = self.standard.apply(embeddings) @ self.first.T.astype(np.float64) + self.first_bias
        return bounded(sigmoid(np.tanh(inner) @ self.last.astype(np.float64) + self.last_bias))

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        return {
            **self.standard.tensors(),
            "first": self.first,
            "first_bias": self.first_bias,
            "last": self.last,
            "last_bias": np.array([self.last_bias], np.float32),
        }


def fit_mlp(examples: Examples, settings: Settings, seed: int) -> MlpRouter:
    """`decay` is that of the weights."""
    embeddings, wanted = examples.compared()
    standard = Standard.of(embeddings)
    x = standard.apply(embeddings)
    directions = main_directions(x)
    spread = np.sqrt((x @ directions.T).var(axis=0).max(initial=0.0)) or 1.0
    directions = directions / spread
    found = _fit(x @ directions.T, wanted, settings["decay"], seed)
    return MlpRouter(
        standard,
        (found["first"] @ directions).astype(np.float32),
        found["first_bias"].astype(np.float32),
        found["last"].astype(np.float32),
        float(np.float32(found["last_bias"][0])),
    )


def read_mlp(parts: StoredParts, shape: Shape) -> MlpRouter:
    return MlpRouter(
        Standard.read(parts, shape.features),
        parts.values("first", (HIDDEN, shape.features)),
        parts.vector("first_bias", HIDDEN),
        parts.vector("last", HIDDEN),
        float(parts.vector("last_bias", 1)[0]),
    )


def main_directions(x: Floats, most: int = DIRECTIONS) -> Floats:
    """[directions, features], orthonormal: those in which these rows differ most."""
    _, _, right = np.linalg.svd(x, full_matrices=False)
    return right[:most]


def _fit(x: Floats, wanted: Floats, decay: float, seed: int) -> Parameters:
    rng = np.random.Generator(np.random.Philox(seed))
    mean = wanted.mean()
    parameters: Parameters = {
        "first": rng.standard_normal((HIDDEN, x.shape[1])) / np.sqrt(x.shape[1]),
        "first_bias": np.zeros(HIDDEN),
        "last": rng.standard_normal(HIDDEN) / HIDDEN,
        "last_bias": np.array([np.log(mean / (1 - mean))]),
    }
    adam = Adam(parameters, rate=RATE, decay=decay, undecayed=frozenset({"first_bias", "last_bias"}))
    for step in range(STEPS):
        adam.step(slopes_of(parameters, x, wanted), 1 - step / STEPS)
    return parameters


def slopes_of(parameters: Parameters, x: Floats, wanted: Floats) -> Parameters:
    """Of the mean cross-entropy."""
    inner = np.tanh(x @ parameters["first"].T + parameters["first_bias"])
    error = (sigmoid(inner @ parameters["last"] + parameters["last_bias"][0]) - wanted) / len(x)
    back = np.outer(error, parameters["last"]) * (1 - inner**2)
    return {
        "first": back.T @ x,
        "first_bias": back.sum(axis=0),
        "last": inner.T @ error,
        "last_bias": np.array([error.sum()]),
    }
