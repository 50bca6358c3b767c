"""A score that is taught: how much the big model is needed, from a few numbers of the little model's answer.

What: logistic regression on what an answer loses against the big model's, over its `features` (`scores.py`).
When it helps: where no single number of an answer tells enough; measure it beside `mean` on the same prompts.
Cost: a product of three or four numbers; teaching takes a part of the calibration's prompts, which test nothing then.
Exactness: a cascade is lossy; a threshold on it is certified like any other, on prompts that taught nothing.
Source: textbook; learned deferral over such features as in Language Model Cascades (arXiv 2404.10136).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.linear import logistic
from offramp.collaborate.router.standard import Standard, sigmoid
from offramp.collaborate.threshold import Scores, bounded
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import Losses
from offramp.model.metadata import Fields
from offramp.params import refused

PENALTY = 0.1
"""On half the squared length of the weights over standardized features: little, since there are only a few."""
FIELDS = ("weights", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Weights over an answer's features."""

    weights: tuple[float, ...]  # [features]
    bias: float

    def score(self, features: Sequence[float]) -> float:
        """Of one answer."""
        return float(self.scores(np.array([features]))[0])

    def scores(self, features: NDArray[np.float64]) -> Scores:
        """[answers], from [answers, features]: estimates of their losses, in [0, 1)."""
        return bounded(sigmoid(features @ np.array(self.weights) + self.bias))

    @staticmethod
    def read(content: Fields, num_features: int) -> Scorer:
        """From JSON. Raises CorruptModelError naming the field."""
        weights = content.numbers("weights")
        if len(weights) != num_features:
            raise content.error("weights", f"{num_features} numbers")
        return Scorer(weights=weights, bias=content.number("bias"))


def teach(features: NDArray[np.float64], losses: Losses) -> Scorer:
    """From answers ([answers, features]) and what each loses.

    Raises InvalidRequestError for losses that tell no answers apart, or are no losses.
    """
    wrong = losses[~((losses >= 0) & (losses <= 1))]
    if len(wrong):
        raise refused("losses", float(wrong[0]), "numbers in [0, 1]")
    if len(np.unique(losses)) < 2:
        what = "no prompts" if len(losses) == 0 else f"{len(losses)} prompts, which all lose {losses[0]:g}"
        hint = "use score mean, or give prompts of which the little model answers some worse than the big one, not all"
        raise InvalidRequestError(f"{what}: nothing to teach a score by", hint=hint, param="score")
    standard = Standard.of(features)
    weights, bias = logistic(standard.apply(features), losses, PENALTY)
    scaled = weights * standard.scale
    return Scorer(weights=tuple(scaled.tolist()), bias=float(bias - scaled @ standard.mean))
