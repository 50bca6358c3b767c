"""Which settings are worth running, from what exits say of full depth's own answers: exit points, measure, thresholds.

Tried are choices of up to three exit points, each measure, and one threshold for all of them, at ranks of the scores;
and the same with everything leaving at the last exit point, which makes the model shallower and exits earlier. The best
are polished: each exit point's own threshold moves as long as that is faster within the same loss.
Shapes: tokens, exits as in `offramp.calibrate.scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from benchmarks.early_exit.costs import StepCosts
from offramp.calibrate.predict import MAX_PENDING
from offramp.calibrate.scores import ScoredTokens
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill

RANKS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75, 0.9)
"""Of the scores: thresholds that are tried."""
FINE_RANKS = tuple(round(0.03 * step, 2) for step in range(1, 33))
"""The same, of one exit point's own scores."""
MOST_FOR_THREE = 8
"""Exit points of which three are combined; of more, every second or third one."""
REPLAYED = 8
"""Choices of exit points whose gains are predicted step by step, since mean rows alone rank them roughly."""
EVERYONE = 0.0
Loss = Callable[[NDArray[np.bool_]], float]
"""Which tokens would be wrong [tokens] -> how much worse the answers would be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, with what it should do to full depth's answers."""

    policy: FrozenPolicy
    loss: float
    depth: float  # mean layers of a token
    seconds: float  # a token, about


def token_loss(scored: ScoredTokens) -> Loss:
    """The share of an answer's tokens, mean of the answers."""
    counts = np.bincount(scored.prompts)
    weights = 1.0 / (counts[scored.prompts] * len(counts))
    return lambda wrong: float(weights[wrong].sum())


def match_loss(scored: ScoredTokens, right: Sequence[bool]) -> Loss:
    """The share of all answers that were right and have a wrong token."""
    count = len(right)
    was_right = np.array(right)[scored.prompts]
    return lambda wrong: len(np.unique(scored.prompts[wrong & was_right])) / count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Space:
    """All settings of one fill, ranked by costs at so many streams. What runs is replayed step by step later."""

    scored: ScoredTokens
    loss: Loss
    costs: StepCosts
    fill: Fill
    streams: int

    def all(self) -> Iterator[Candidate]:
        """Those with one threshold."""
        for measure in self.scored.measures:
            levels = self._levels(measure, range(len(self.scored.layers)), RANKS)
            for columns in self._choices():
                if len(columns) == 1:
                    yield self.candidate(measure, columns, (EVERYONE,))
                for level in levels:
                    same = (level,) * len(columns)
                    yield self.candidate(measure, columns, same)
                    if len(columns) > 1:
                        yield self.candidate(measure, columns, (*same[:-1], EVERYONE))

    def polished(self, start: Candidate, budget: float) -> Candidate:
        """A faster one by the same exit points and measure, with a loss of at most `budget`."""
        policy = start.policy
        columns = [self.scored.layers.index(layer) for layer in policy.layers]
        best = start
        for place in [*range(len(columns))] * 2:
            for level in self._levels(policy.measure, [columns[place]], FINE_RANKS):
                thresholds = list(best.policy.thresholds)
                thresholds[place] = level
                found = self.candidate(policy.measure, columns, tuple(thresholds))
                if found.loss <= budget and found.seconds < best.seconds:
                    best = found
        return best

    def candidate(self, measure: str, columns: Sequence[int], thresholds: tuple[float, ...]) -> Candidate:
        """What these thresholds would do."""
        scored, num_layers = self.scored, self.costs.table.num_layers
        at = np.flatnonzero(scored.asked)
        stays = np.ones(len(at), np.bool_)
        wrong = np.zeros(len(scored.asked), np.bool_)
        shares = [1.0]  # of the tokens that arrive at each exit point, then at the last layer
        for column, threshold in zip(columns, thresholds, strict=True):
            leaving = stays & (scored.measures[measure][at, column].astype(np.float64) >= threshold)
            wrong[at[leaving & ~scored.agreed[at, column]]] = True
            stays &= ~leaving
            shares.append(float(stays.mean()) if len(stays) else 1.0)
        layers = tuple(scored.layers[column] for column in columns)
        depths = [0, *layers, num_layers]
        depth = sum(share * (stop - start) for share, start, stop in zip(shares, depths, depths[1:], strict=False))
        policy = FrozenPolicy(layers=layers, thresholds=thresholds, measure=measure, fill=self.fill)
        return Candidate(policy, self.loss(wrong), depth, self._seconds(shares, depths) / self.streams)

    def _choices(self) -> Iterator[tuple[int, ...]]:
        """Columns of one, two or three exit points."""
        columns = range(len(self.scored.layers))
        for size in (1, 2):
            yield from combinations(columns, size)
        yield from combinations(columns[:: -(-len(columns) // MOST_FOR_THREE)], 3)

    def _levels(self, measure: str, columns: Sequence[int], ranks: Sequence[float]) -> list[float]:
        scores = self.scored.measures[measure][self.scored.asked][:, list(columns)].astype(np.float64)
        known = scores[np.isfinite(scores)]
        return sorted({float(level) for level in np.quantile(known, ranks, method="lower")}) if len(known) else []

    def _seconds(self, shares: Sequence[float], depths: Sequence[int]) -> float:
        """Of a step, by the mean rows of each range."""
        costs, num_layers = self.costs, depths[-1]
        seconds = costs.besides[self.streams] + _for_rows(costs.table.head.at, shares[-1] * self.streams)
        for share, after, start, stop in zip(shares, (*shares[1:], 0.0), depths, depths[1:], strict=False):
            rows, left = share * self.streams, (share - after) * self.streams
            steps, together = self._passes(share)
            seconds += steps * (costs.layers(together, stop - start) + costs.table.call)
            if stop == num_layers:
                break
            seconds += _for_rows(costs.ask[stop].at, rows)
            if self.fill == "propagate":
                seconds += _for_rows(costs.fill.at, left) * (num_layers - stop)
        return seconds

    def _passes(self, share: float) -> tuple[float, float]:
        """Of a step, how often a range runs where so many tokens arrive, and with how many rows."""
        if self.fill == "propagate":
            return min(1.0, share * self.streams), max(1.0, share * self.streams)
        left = 1.0 - share  # all rows run everywhere in the end, with the debts that wait for them
        deep = share / (1.0 - left ** (MAX_PENDING + 1)) if share else 1 / (MAX_PENDING + 1)
        return min(1.0, deep * self.streams), max(float(self.streams), 1.0 / deep)


def shortlist(
    space: Space, found: Sequence[Candidate], budgets: Sequence[float], gain: Callable[[FrozenPolicy], float]
) -> list[Candidate]:
    """For each measure and budget of loss the one with the best gain, of the fastest of some choices of exit points.

    Under `propagate` also for each first exit point, within the smallest budget: K/V projected from shallow states may
    cost quality which full depth's own answers do not show.
    """
    chosen: dict[FrozenPolicy, Candidate] = {}
    for measure in space.scored.measures:
        own = sorted((each for each in found if each.policy.measure == measure), key=lambda each: each.seconds)
        least = min(each.loss for each in own)
        wanted: list[tuple[float, int | None]] = [(max(budget, least), None) for budget in budgets]
        if space.fill == "propagate":
            wanted += [(max(min(budgets), least), layer) for layer in space.scored.layers[1:]]
        for allowed, first in wanted:
            pool = [each for each in own if each.loss <= allowed]
            some = _some(pool) if first is None else _fastest(pool, 1, first)
            if some:
                best = max((space.polished(each, allowed) for each in some), key=lambda each: gain(each.policy))
                chosen[best.policy] = best
    return list(chosen.values())


def _some(rising: Sequence[Candidate]) -> list[Candidate]:
    """The fastest of several choices of exit points, among them one for each first exit point."""
    firsts = sorted({each.policy.layers[0] for each in rising})
    return _fastest(rising, REPLAYED) + [each for first in firsts for each in _fastest(rising, 1, first)]


def _fastest(rising: Sequence[Candidate], count: int, first: int = 0) -> list[Candidate]:
    """Of so many choices of exit points, none before the first one."""
    kept: dict[tuple[int, ...], Candidate] = {}
    for each in rising:
        if len(kept) == count:
            break
        if each.policy.layers[0] >= first:
            kept.setdefault(each.policy.layers, each)
    return list(kept.values())


def _for_rows(curve: Callable[[int], float], rows: float) -> float:
    """For a mean number of rows: below one, a share of one row's."""
    return curve(max(1, round(rows))) * min(1.0, rows)
