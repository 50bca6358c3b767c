"""What every kind of router has in common, and what it learns from.

prompts = of the data; features = of an embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.outcomes import Outcomes, targets
from offramp.collaborate.threshold import Scores
from offramp.errors import InvalidRequestError
from offramp.model.pack_tensors import StoredParts

Embeddings = NDArray[np.float32]  # [prompts, features]
Settings = Mapping[str, float]
"""Of a fit, by name."""


class Router(Protocol):
    """Says from a prompt's embedding how much the big model is needed. Never changes."""

    def scores(self, embeddings: Embeddings) -> Scores:
        """[prompts], each in [0, 1): an estimate of (1 + gain) / 2."""
        ...

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        """What a pack keeps of it: f32 or f16."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples:
    """Prompts with the outcomes of the models, of which two are the pair that a router decides between."""

    embeddings: Embeddings
    outcomes: Outcomes
    little: str
    big: str

    def __len__(self) -> int:
        return len(self.embeddings)

    def take(self, places: NDArray[np.int64]) -> Examples:
        """Some of them."""
        return Examples(
            embeddings=self.embeddings[places], outcomes=self.outcomes.take(places), little=self.little, big=self.big
        )

    def compared(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Embeddings and targets of the prompts that both models of the pair answered.

        Raises InvalidRequestError where one of the two is the better one for all of them.
        """
        gains = self.outcomes.gains(self.little, self.big)
        known = ~np.isnan(gains)
        wanted = targets(gains[known])
        if not 0 < wanted.mean() < 1:
            hint = "give outcomes in which the big model is better for some prompts, and not for others"
            raise InvalidRequestError(f"{len(wanted)} prompts, all of one class", hint=hint, param="data")
        return self.embeddings[known].astype(np.float64), wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a pack's tensors must fit."""

    features: int
    models: tuple[str, ...]
    little: str
    big: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind: how it is fitted and read, and the settings that are tried."""

    fit: Callable[[Examples, Settings, int], Router]  # with a seed
    read: Callable[[StoredParts, Shape], Router]
    grid: Sequence[Settings] = ({},)
