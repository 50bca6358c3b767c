"""Thresholds learned while serving: a mixture of two Beta laws.

What: the scores at an exit point are drawn from one Beta law where the head agrees with full depth, and from another
where it does not. Both are fitted by expectation maximization: tokens that left and were paid for have labels, rows
that stayed have none. The threshold is the lowest score from which on up agreement is likelier than `confidence`.
When it helps: without calibration prompts, or when traffic drifts away from them.
Cost: some milliseconds at most, every `REFIT` scores.
Exactness: lossy and without any promise. Adaptive: tokens depend on what ran before, so for mode `unchecked` only.
Source: FREE (arXiv 2310.05424), which has one exit and labels for every score.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.exits.measures import Scores
from offramp.params import check_number

CONFIDENCE = 0.4
LOWEST, HIGHEST = 0.3, 0.9
"""Where thresholds stay, whatever is learned; they start at the highest."""
WINDOW = 1024
"""The latest scores of an exit point, which alone count."""
REFIT = 16
"""New scores before the next fit."""
FEWEST = 32
"""Labels before the first fit."""
MAX_ITERATIONS = 300
TOLERANCE = 1e-4
EDGE = 1e-4
"""Scores are kept so far from 0 and 1, where Beta densities may be infinite."""
SHAPES = 0.05, 1e4
"""Smallest and largest shape of a law."""
PRIOR_WEIGHT = 2.0
"""Scores that each law's prior counts as."""

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BetaLaw:
    """A Beta distribution over scores."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> float:
        return self.mean * (1 - self.mean) / (self.a + self.b + 1)

    def log_density(self, x: Doubles) -> Doubles:
        scale = math.lgamma(self.a + self.b) - math.lgamma(self.a) - math.lgamma(self.b)
        density: Doubles = scale + (self.a - 1) * np.log(x) + (self.b - 1) * np.log1p(-x)
        return density

    @staticmethod
    def of_moments(mean: float, variance: float) -> BetaLaw:
        size = mean * (1 - mean) / max(variance, 1e-9) - 1
        low, high = SHAPES
        return BetaLaw(min(high, max(low, mean * size)), min(high, max(low, (1 - mean) * size)))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Scores where the head agrees with full depth, a share `weight` of all, and where it differs."""

    agree: BetaLaw
    differ: BetaLaw
    weight: float

    def chance(self, scores: Doubles) -> Doubles:
        """How likely agreement is at these scores."""
        x = np.clip(scores, EDGE, 1 - EDGE)
        odds = self.differ.log_density(x) - self.agree.log_density(x) + math.log((1 - self.weight) / self.weight)
        chance: Doubles = 1 / (1 + np.exp(np.clip(odds, -700, 700)))
        return chance


PRIOR = Mixture(BetaLaw.of_moments(0.85, 0.03), BetaLaw.of_moments(0.45, 0.06), 0.5)


def fit_mixture(scores: Doubles, labels: NDArray[np.int8], start: Mixture = PRIOR) -> Mixture:
    """Expectation maximization by moments. Labels: 1 agreed, 0 differed, -1 unknown; all [scores]."""
    x = np.clip(scores, EDGE, 1 - EDGE)
    known = labels >= 0
    shares = np.where(known, labels, 0.0)
    mixture = start
    for _ in range(MAX_ITERATIONS):
        if not known.all():
            shares = np.where(known, labels, mixture.chance(x))
        found = _maximize(x, shares)
        settled = _distance(found, mixture) < TOLERANCE
        mixture = found
        if settled or known.all():
            break
    return mixture


def _maximize(x: Doubles, shares: Doubles) -> Mixture:
    """The mixture with the moments of scores that agree with these chances, the prior counted in."""
    weight = (shares.sum() + PRIOR_WEIGHT * PRIOR.weight) / (len(x) + PRIOR_WEIGHT)
    return Mixture(_law(x, shares, PRIOR.agree), _law(x, 1 - shares, PRIOR.differ), float(weight))


def _law(x: Doubles, shares: Doubles, prior: BetaLaw) -> BetaLaw:
    total = shares.sum() + PRIOR_WEIGHT
    mean = ((shares * x).sum() + PRIOR_WEIGHT * prior.mean) / total
    spread = PRIOR_WEIGHT * (prior.variance + (prior.mean - mean) ** 2)
    return BetaLaw.of_moments(float(mean), float(((shares * (x - mean) ** 2).sum() + spread) / total))


def _distance(one: Mixture, other: Mixture) -> float:
    pairs = ((one.agree.mean, other.agree.mean), (one.differ.mean, other.differ.mean), (one.weight, other.weight))
    return max(abs(new - old) for new, old in pairs)


def lowest_score(mixture: Mixture, confidence: float = CONFIDENCE) -> float:
    """The lowest score from which on up to `HIGHEST` agreement is likelier than `confidence`, in [LOWEST, HIGHEST]."""
    grid = np.linspace(LOWEST, HIGHEST, 241)
    unlikely = np.flatnonzero(mixture.chance(grid) <= confidence)
    if len(unlikely) == 0:
        return LOWEST
    return float(grid[min(unlikely[-1] + 1, len(grid) - 1)])


@dataclass(slots=True)
class _Exit:
    """What one exit point has shown."""

    samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    num_new: int = 0
    mixture: Mixture = PRIOR
    threshold: float = HIGHEST


class BetaMixture:
    """An adaptive `Threshold`: each exit point learns its own from the latest scores."""

    def __init__(self, confidence: float = CONFIDENCE) -> None:
        check_number("confidence", confidence, 0.0, 1.0)
        self._confidence = confidence
        self._exits: dict[int, _Exit] = {}

    @property
    def adaptive(self) -> bool:
        return True

    @property
    def wants_labels(self) -> bool:
        return True

    def value(self, layer: int, output: int) -> float:
        seen = self._exits.get(layer)
        return seen.threshold if seen else HIGHEST

    def decided(self, layer: int, scores: Scores, left: NDArray[np.bool_]) -> None:
        """Rows that stayed count without a label; those that left wait for theirs."""
        stayed = scores[~left & np.isfinite(scores)]
        self._learn(layer, ((score, -1) for score in stayed.tolist()))

    def observe(self, layer: int, scores: Scores, agreed: NDArray[np.bool_]) -> None:
        self._learn(layer, zip(scores.tolist(), agreed.astype(int).tolist(), strict=True))

    def _learn(self, layer: int, samples: Iterable[tuple[float, int]]) -> None:
        seen = self._exits.setdefault(layer, _Exit())
        for sample in samples:
            seen.samples.append(sample)
            seen.num_new += 1
        if seen.num_new < REFIT:
            return
        scores, labels = (np.array(column) for column in zip(*seen.samples, strict=True))
        if np.count_nonzero(labels >= 0) < FEWEST:
            return
        seen.num_new = 0
        seen.mixture = fit_mixture(scores.astype(np.float64), labels.astype(np.int8), seen.mixture)
        seen.threshold = lowest_score(seen.mixture, self._confidence)
