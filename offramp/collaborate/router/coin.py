"""Tosses a coin.

What: a number drawn evenly for each prompt, the same one whenever it comes again.
When it helps: never; whoever can't beat it should not be used.
Cost: a hash.
Exactness: routing is lossy by design.
Source: the baseline of RouteLLM (arXiv 2406.18665).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.kind import Embeddings, Examples, Settings, Shape
from offramp.collaborate.threshold import Scores
from offramp.model.pack_tensors import StoredParts


class CoinRouter:
    """A number in [0, 1) by the embedding's bytes."""

    def scores(self, embeddings: Embeddings) -> Scores:
        return np.array([_toss(row) for row in np.ascontiguousarray(embeddings, dtype=np.float32)], dtype=np.float64)

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        return {}


def fit_coin(examples: Examples, settings: Settings, seed: int) -> CoinRouter:
    """Nothing is learned."""
    return CoinRouter()


def read_coin(parts: StoredParts, shape: Shape) -> CoinRouter:
    return CoinRouter()


def _toss(row: NDArray[np.float32]) -> float:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest()[:6], "little") / 2**48
