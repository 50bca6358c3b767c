"""How good a router is: what part of the big model's gain it gets for what share of its calls.

What: PGR, the performance gap recovered, at a share of calls is (quality - little's) / (big's - little's). APGR is its
mean over all shares: 1/2 for coin tosses. CPT(x) is the least share of calls at which PGR reaches x.
When it helps: on prompts that were not used to train or choose the router, with the interval: a bootstrap over prompts.
Cost: a sort, and one pass for each draw of the bootstrap.
Exactness: prompts of equal scores are called in random order, in expectation: a constant score has APGR 1/2 exactly.
Source: RouteLLM (arXiv 2406.18665).

draws = resamples; prompts; knots = distinct scores, after 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.outcomes import Gains, check_learnable
from offramp.collaborate.threshold import Scores
from offramp.params import check_number

DRAWS = 2000
CONFIDENCE = 0.95
MOST_WITHOUT_GAP = 0.001
"""Share of resamples in which the big model is no better; with more there is no interval."""
BLOCK = 200
"""Resamples at a time."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; None where the sample has too small a gap for one."""

    value: float
    low: float | None
    high: float | None

    def excludes(self, value: float) -> bool:
        """The interval is there, and the value is outside."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """PGR by the share of calls, linear between the knots."""

    shares: Floats  # [knots], from 0 to 1
    recovered: Floats  # [knots], from 0 to 1, above and below that between them

    @property
    def apgr(self) -> float:
        return float(_apgr(self.shares[None], self.recovered[None])[0])

    def cpt(self, recovered: float) -> float:
        """CPT(x), with x in (0, 1]."""
        check_number("recovered", recovered, 0.0, 1.0, open_low=True)
        return float(_cpt(self.shares[None], self.recovered[None], recovered)[0])

    def at(self, share: float) -> float:
        """PGR at a share of calls."""
        return float(np.interp(share, self.shares, self.recovered))


def curve_of(scores: Scores, gains: Gains) -> Curve:
    """Raises InvalidRequestError where the big model is no better on the whole."""
    check_learnable(gains)
    shares, recovered = _curves(scores, gains, np.ones((1, len(gains))))
    return Curve(shares[0], recovered[0])


def estimate_apgr(scores: Scores, gains: Gains, *, draws: int = DRAWS, seed: int = 0) -> Estimate:
    """APGR with its bootstrap interval."""
    return _estimate(scores, gains, curve_of(scores, gains).apgr, _apgr, draws, seed)


def estimate_cpt(scores: Scores, gains: Gains, recovered: float, *, draws: int = DRAWS, seed: int = 0) -> Estimate:
    """CPT(recovered) with its bootstrap interval."""
    value = curve_of(scores, gains).cpt(recovered)
    return _estimate(scores, gains, value, lambda shares, gained: _cpt(shares, gained, recovered), draws, seed)


def _estimate(
    scores: Scores,
    gains: Gains,
    value: float,
    figure: Callable[[Floats, Floats], Floats],
    draws: int,
    seed: int,
) -> Estimate:
    count = len(gains)
    rng = np.random.Generator(np.random.Philox(seed))
    found = []
    for begin in range(0, draws, BLOCK):
        counts = rng.multinomial(count, np.full(count, 1 / count), size=min(BLOCK, draws - begin)).astype(np.float64)
        with_gap = counts[counts @ gains > 0]
        if len(with_gap):
            found.append(figure(*_curves(scores, gains, with_gap)))
    figures = np.concatenate(found) if found else np.zeros(0)
    if len(figures) < (1 - MOST_WITHOUT_GAP) * draws:
        return Estimate(value, None, None)
    low, high = np.quantile(figures, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))


def _curves(scores: Scores, gains: Gains, counts: Floats) -> tuple[Floats, Floats]:
    """Shares and recovered parts [draws, knots] of samples that hold each prompt so many times [draws, prompts]."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    called = np.cumsum(counts[:, order], axis=1)[:, ends]
    gained = np.cumsum((counts * gains)[:, order], axis=1)[:, ends]
    start = np.zeros((len(counts), 1))
    return np.hstack([start, called / called[:, -1:]]), np.hstack([start, gained / gained[:, -1:]])


def _apgr(shares: Floats, recovered: Floats) -> Floats:
    """[draws]: the area under each curve."""
    areas: Floats = (np.diff(shares, axis=1) * (recovered[:, 1:] + recovered[:, :-1]) / 2).sum(axis=1)
    return areas


def _cpt(shares: Floats, recovered: Floats, wanted: float) -> Floats:
    """[draws]: where each curve first reaches the wanted part."""
    first = (recovered >= wanted - 1e-12).argmax(axis=1)
    rows = np.arange(len(shares))
    low, high = recovered[rows, first - 1], recovered[rows, first]
    part = (wanted - low) / (high - low)
    before, behind = shares[rows, first - 1], shares[rows, first]
    reached: Floats = np.minimum(behind, before + part * (behind - before))
    return reached
