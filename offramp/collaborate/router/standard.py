"""Embeddings on one scale: every feature with mean 0 and deviation 1 over the training prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.model.pack_tensors import StoredParts


@dataclass(frozen=True, slots=True, eq=False)
class Standard:
    """A shift and a scale for each feature; rows come out with a length of about 1."""

    mean: NDArray[np.float32]  # [features]
    scale: NDArray[np.float32]  # [features]

    @staticmethod
    def of(embeddings: NDArray[np.floating]) -> Standard:
        """That of these prompts. A feature that never changes counts nothing."""
        values = embeddings.astype(np.float64)
        deviation = values.std(axis=0)
        useful = deviation > 1e-8 * (1 + np.abs(values).max(axis=0))
        scale = np.where(useful, 1 / np.where(useful, deviation, 1.0), 0.0) / np.sqrt(max(1, int(useful.sum())))
        return Standard(values.mean(axis=0).astype(np.float32), scale.astype(np.float32))

    @staticmethod
    def read(parts: StoredParts, features: int) -> Standard:
        return Standard(parts.vector("mean", features), parts.vector("scale", features))

    def apply(self, embeddings: NDArray[np.floating]) -> NDArray[np.float64]:
        """[prompts, features]"""
        scaled: NDArray[np.float64] = (embeddings.astype(np.float64) - self.mean) * self.scale
        return scaled

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        return {"mean": self.mean, "scale": self.scale}


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(values))
    result: NDArray[np.float64] = np.where(values >= 0, 1 / (1 + small), small / (1 + small))
    return result
