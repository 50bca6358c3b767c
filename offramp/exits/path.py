"""A path through threshold space, chosen on tuning prompts.

What: starts where nothing leaves, and lowers one exit point's threshold at a time: of all cuts that stay within a small
rise of the loss the one that saves most for each bit of loss. Thresholds are among the scores seen.
When it helps: several exit points with heads of different quality, each with a threshold of its own.
Cost: some milliseconds a step for thousands of tokens; no model.
Exactness: a choice only. Whatever it chooses, the tests of `calibration.py` on other prompts keep the promise.
Source: Learn then Test (arXiv 2110.01052) leaves the path open; a greedy ascent as in knapsack problems.

Shapes: tokens, exits = exit points from shallow to deep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.exits.calibration import check_risk
from offramp.exits.thresholds import NEVER
from offramp.params import check_int

NUM_CUTS = 32
"""Thresholds tried for each exit point."""
STEP = 1 / 8
"""Of the risk: what the loss may rise by from one point of the path to the next."""
REACH = 1.5
"""The path ends where the tuning loss exceeds so much of the risk."""
FREE = 1e-6
"""A rise of the loss that counts as none, so that what costs nothing is ranked by what it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class TuningTokens:
    """What each exit point would have said of tokens that full depth generated; all arrays are in the same order.

    `saved[e]` is what leaving at exit e saves, `asked[e]` what its head costs, in one unit: seconds, or layers.
    """

    scores: NDArray[np.float32]  # [tokens, exits]; NaN where a predictor kept the row from the head
    agreed: NDArray[np.bool_]  # [tokens, exits], the exit's token is that of full depth
    prompts: NDArray[np.int64]  # [tokens], which prompt
    saved: NDArray[np.float64]  # [exits]
    asked: NDArray[np.float64]  # [exits]

    def __post_init__(self) -> None:
        tokens, exits = self.scores.shape
        assert (self.agreed.shape, self.prompts.shape) == ((tokens, exits), (tokens,)), "arrays of one length"
        assert self.saved.shape == self.asked.shape == (exits,), "a saving and a cost for each exit point"


@dataclass(frozen=True, slots=True)
class PathPoint:
    """Thresholds for all exit points; loss (mean over prompts of the share of tokens) and gain a token, on tuning."""

    thresholds: tuple[float, ...]  # [exits]; NEVER where nothing leaves
    loss: float
    gain: float


def threshold_path(tokens: TuningTokens, risk: float, *, max_points: int = 12) -> list[PathPoint]:
    """Settings to test in this order: gains rise, losses mostly do. Empty if no exit point saves anything."""
    check_risk(risk)
    check_int("max_points", max_points, 1)
    if len(tokens.prompts) == 0:
        return []
    points = list(_ascent(tokens, risk))
    return _thinned(points, risk, max_points)


def _ascent(tokens: TuningTokens, risk: float) -> Iterator[PathPoint]:
    judge = _Judge(tokens)
    cuts = [_cuts(tokens.scores[:, column]) for column in range(tokens.scores.shape[1])]
    here = judge.point((NEVER,) * len(cuts))
    while True:
        better = [
            point
            for column, levels in enumerate(cuts)
            for level in levels
            if level < here.thresholds[column]
            and (point := judge.point(_replaced(here.thresholds, column, level))).gain > here.gain
        ]
        if not better:
            return
        within = [point for point in better if point.loss <= here.loss + STEP * risk]
        if within:
            here = max(within, key=lambda point: (point.gain - here.gain) / max(FREE, point.loss - here.loss))
        else:
            here = min(better, key=lambda point: (point.loss, -point.gain))
        if here.loss > REACH * risk:
            return
        yield here


class _Judge:
    """Loss and gain of thresholds on the tuning tokens."""

    def __init__(self, tokens: TuningTokens) -> None:
        self._tokens = tokens
        self._scores = tokens.scores.astype(np.float64)  # [tokens, exits], as policies compare them
        _, index, counts = np.unique(tokens.prompts, return_inverse=True, return_counts=True)
        self._weights = 1.0 / (counts[index] * len(counts))  # [tokens]: prompts count alike, however long

    def point(self, thresholds: tuple[float, ...]) -> PathPoint:
        tokens = self._tokens
        stays = np.ones(len(tokens.prompts), dtype=np.bool_)
        loss = gain = 0.0
        for column, threshold in enumerate(thresholds):
            if threshold > 1:
                continue
            scores = self._scores[:, column]
            leaves = stays & (scores >= threshold)
            gain += tokens.saved[column] * leaves.mean() - tokens.asked[column] * (stays & ~np.isnan(scores)).mean()
            loss += self._weights[leaves & ~tokens.agreed[:, column]].sum()
            stays &= ~leaves
        return PathPoint(thresholds, float(loss), float(gain))


def _cuts(scores: NDArray[np.float32]) -> list[float]:
    """Scores of this exit point at even distances of rank, falling, among them the smallest."""
    known = np.unique(scores[np.isfinite(scores)].astype(np.float64))
    if len(known) == 0:
        return []
    ranks = np.linspace(len(known) - 1, 0, NUM_CUTS).round().astype(np.int64)
    return sorted(set(known[ranks].tolist()), reverse=True)


def _replaced(thresholds: tuple[float, ...], column: int, level: float) -> tuple[float, ...]:
    return (*thresholds[:column], level, *thresholds[column + 1 :])


def _thinned(points: list[PathPoint], risk: float, most: int) -> list[PathPoint]:
    """At most so many points, at even distances of the loss; of several the last, which gains most. In order."""
    levels = np.linspace(0, REACH * risk, most + 1)[1:]
    kept: dict[int, PathPoint] = {}
    for point in points:
        kept[int(np.searchsorted(levels, point.loss))] = point
    return sorted(kept.values(), key=lambda point: point.gain)
