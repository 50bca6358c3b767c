"""What the most similar prompts came to.

What: the mean target of the k nearest training prompts, weighted by cosine, drawn to the mean of all by one more vote.
When it helps: many training prompts, in groups of one difficulty.
Cost: one product with all training prompts, which the pack holds.
Exactness: routing is lossy by design.
Source: RouteLLM's similarity-weighted ranking (arXiv 2406.18665), with a mean in place of ratings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.kind import Embeddings, Examples, Settings, Shape
from offramp.collaborate.router.standard import Standard
from offramp.collaborate.threshold import Scores, bounded
from offramp.model.pack_tensors import StoredParts

BLOCK = 1024
"""Prompts scored at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class KnnRouter:
    """Training prompts, of length 1 in the standard's scale, and what each came to."""

    standard: Standard
    prompts: NDArray[np.float16]  # [training prompts, features]
    wanted: NDArray[np.float32]  # [training prompts]
    num_neighbours: int

    def scores(self, embeddings: Embeddings) -> Scores:
        blocks = [self._scores(embeddings[at : at + BLOCK]) for at in range(0, len(embeddings), BLOCK)]
        return np.concatenate([np.zeros(0), *blocks])

    def _scores(self, embeddings: Embeddings) -> Scores:
        cosines = unit(self.standard.apply(embeddings)) @ self.prompts.T.astype(np.float64)
        k = min(self.num_neighbours, len(self.prompts))
        nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        weights = np.maximum(np.take_along_axis(cosines, nearest, axis=1), 0.0)
        votes = (weights * self.wanted[nearest]).sum(axis=1)
        return bounded((votes + self.wanted.mean()) / (weights.sum(axis=1) + 1))

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        k = np.array([self.num_neighbours], np.float32)
        return {**self.standard.tensors(), "prompts": self.prompts, "wanted": self.wanted, "neighbours": k}


def fit_knn(examples: Examples, settings: Settings, seed: int) -> KnnRouter:
    """`neighbours` is how many count."""
    embeddings, wanted = examples.compared()
    standard = Standard.of(embeddings)
    prompts = unit(standard.apply(embeddings)).astype(np.float16)
    return KnnRouter(standard, prompts, wanted.astype(np.float32), int(settings["neighbours"]))


def read_knn(parts: StoredParts, shape: Shape) -> KnnRouter:
    count = parts.length("wanted")
    standard = Standard.read(parts, shape.features)
    prompts = parts.values("prompts", (count, shape.features)).astype(np.float16)
    neighbours = float(parts.vector("neighbours", 1)[0])
    if not 1 <= neighbours <= 2**20 or neighbours != int(neighbours):
        raise parts.error(f"tensor 'neighbours' holds {neighbours:g}, a whole number from 1 on is called for")
    return KnnRouter(standard, prompts, parts.vector("wanted", count), int(neighbours))


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1.0)
    return scaled
