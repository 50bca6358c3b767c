"""A vector for each model.

What: matrix factorization. A model's strength at a prompt is the product of its vector with a projection of the
embedding; the chance that one beats another is the sigmoid of the difference, learnt from all pairs of models that
answered a prompt.
When it helps: outcomes of several models, each of some prompts: what one pair teaches serves the others. The pack then
serves any pair.
Cost: one product, of a few rows.
Exactness: routing is lossy by design. A fit is repeatable by its seed.
Source: the router `mf` of RouteLLM (arXiv 2406.18665), over other embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.adam import Adam, Parameters
from offramp.collaborate.router.kind import Embeddings, Examples, Settings, Shape
from offramp.collaborate.router.outcomes import Outcomes, targets
from offramp.collaborate.router.standard import Standard, sigmoid
from offramp.collaborate.threshold import Scores, bounded
from offramp.model.pack_tensors import StoredParts
from offramp.params import check_choice

WIDTH = 16
STEPS = 300
RATE = 1e-2
SPREAD = 8.0
"""What standardized rows, of length 1, are stretched by for the projection."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FactorRouter:
    """Vectors of all models; the last place of each meets a constant 1."""

    standard: Standard
    projection: NDArray[np.float32]  # [WIDTH, features]
    vectors: NDArray[np.float32]  # [models, WIDTH + 1]
    models: tuple[str, ...]
    little: str
    big: str

    def scores(self, embeddings: Embeddings) -> Scores:
        places = projected(self.standard.apply(embeddings), self.projection.astype(np.float64))
        ahead = self.vectors[self.models.index(self.big)] - self.vectors[self.models.index(self.little)]
        return bounded(sigmoid(places @ ahead.astype(np.float64)))

    def between(self, little: str, big: str) -> FactorRouter:
        """The same router for another pair."""
        check_choice("little", little, self.models)
        check_choice("big", big, self.models)
        return FactorRouter(self.standard, self.projection, self.vectors, self.models, little, big)

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        return {**self.standard.tensors(), "projection": self.projection, "vectors": self.vectors}


def fit_factors(examples: Examples, settings: Settings, seed: int) -> FactorRouter:
    """`decay` is that of projection and vectors."""
    outcomes = examples.outcomes
    standard = Standard.of(examples.embeddings)
    x = standard.apply(examples.embeddings)
    rng = np.random.Generator(np.random.Philox(seed))
    parameters: Parameters = {
        "projection": rng.standard_normal((WIDTH, x.shape[1])) / np.sqrt(x.shape[1]),
        "vectors": 0.1 * rng.standard_normal((len(outcomes.models), WIDTH + 1)),
    }
    adam = Adam(parameters, rate=RATE, decay=settings["decay"], undecayed=frozenset())
    pairs = list(compared_pairs(outcomes))
    for step in range(STEPS):
        adam.step(slopes_of(parameters, x, pairs), 1 - step / STEPS)
    return FactorRouter(
        standard,
        parameters["projection"].astype(np.float32),
        parameters["vectors"].astype(np.float32),
        outcomes.models,
        examples.little,
        examples.big,
    )


def read_factors(parts: StoredParts, shape: Shape) -> FactorRouter:
    return FactorRouter(
        Standard.read(parts, shape.features),
        parts.values("projection", (WIDTH, shape.features)),
        parts.values("vectors", (len(shape.models), WIDTH + 1)),
        shape.models,
        shape.little,
        shape.big,
    )


Pair = tuple[int, int, NDArray[np.int64], Floats]
"""One model, another, the prompts that both answered, and how much the other was better: 1, 0, or 1/2."""


def compared_pairs(outcomes: Outcomes) -> Iterator[Pair]:
    """All that were compared."""
    for one, other in combinations(range(len(outcomes.models)), 2):
        gains = outcomes.quality[:, other] - outcomes.quality[:, one]
        known = np.flatnonzero(~np.isnan(gains))
        if len(known):
            yield one, other, known, targets(gains[known])


def projected(x: Floats, projection: Floats) -> Floats:
    """[prompts, WIDTH + 1]"""
    return np.hstack([SPREAD * (x @ projection.T), np.ones((len(x), 1))])


def slopes_of(parameters: Parameters, x: Floats, pairs: list[Pair]) -> Parameters:
    """Of the mean cross-entropy over all comparisons."""
    projection, vectors = parameters["projection"], parameters["vectors"]
    places = projected(x, projection)
    total = sum(len(known) for _, _, known, _ in pairs)
    for_projection, for_vectors = np.zeros_like(projection), np.zeros_like(vectors)
    for one, other, known, wanted in pairs:
        ahead = vectors[other] - vectors[one]
        error = (sigmoid(places[known] @ ahead) - wanted) / total
        pull = error @ places[known]
        for_vectors[other] += pull
        for_vectors[one] -= pull
        for_projection += SPREAD * np.outer(ahead[:-1], error @ x[known])
    return {"projection": for_projection, "vectors": for_vectors}
