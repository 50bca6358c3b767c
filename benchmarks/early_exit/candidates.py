"""Which settings are worth running, from what exits say of full depth's own answers: exit points, measure, thresholds.

Tried are all choices of up to three exit points, each measure, and one threshold for all of them, at ranks of the
scores; and the same with everything leaving at the last exit point, which makes the model shallower and exits earlier.
Shapes: tokens, exits as in `offramp.calibrate.scores`; answers.
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

MOST_EXITS = 3
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
"""Ranks of the scores that are tried as thresholds."""
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


def candidates(scored: ScoredTokens, loss: Loss, costs: StepCosts, *, fill: Fill, streams: int) -> Iterator[Candidate]:
    """All of them. `costs` rank them by mean rows; what runs is replayed step by step later."""
    num_exits = len(scored.layers)
    asked = scored.asked
    for measure, scores in scored.measures.items():
        known = scores[asked].astype(np.float64)
        finite = known[np.isfinite(known)]
        levels = sorted({float(level) for level in np.quantile(finite, LEVELS, method="lower")}) if len(finite) else []
        reach = [(level, known >= level) for level in levels]
        for size in range(1, min(MOST_EXITS, num_exits) + 1):
            for columns in combinations(range(num_exits), size):
                if size == 1:
                    yield _candidate(scored, loss, costs, fill, streams, measure, columns, (EVERYONE,), [])
                for level, above in reach:
                    chosen = [above[:, column] for column in columns]
                    same = (level,) * size
                    yield _candidate(scored, loss, costs, fill, streams, measure, columns, same, chosen)
                    if size > 1:
                        capped = (*same[:-1], EVERYONE)
                        yield _candidate(scored, loss, costs, fill, streams, measure, columns, capped, chosen[:-1])


def _candidate(
    scored: ScoredTokens,
    loss: Loss,
    costs: StepCosts,
    fill: Fill,
    streams: int,
    measure: str,
    columns: Sequence[int],
    thresholds: tuple[float, ...],
    leaves: Sequence[NDArray[np.bool_]],  # at each of `columns`; without the last one, all leave there
) -> Candidate:
    num_layers, layers = costs.table.num_layers, [scored.layers[column] for column in columns]
    stays = np.ones(int(scored.asked.sum()), np.bool_)
    wrong = np.zeros(len(scored.asked), np.bool_)
    at = np.flatnonzero(scored.asked)
    shares = [1.0]  # of the tokens that arrive at each exit point, then at the last layer
    for index, column in enumerate(columns):
        leaving = stays & leaves[index] if index < len(leaves) else stays.copy()
        wrong[at[leaving & ~scored.agreed[at, column]]] = True
        stays &= ~leaving
        shares.append(float(stays.mean()) if len(stays) else 1.0)
    depths = [0, *layers, num_layers]
    depth = sum(share * (stop - start) for share, start, stop in zip(shares, depths, depths[1:], strict=False))
    policy = FrozenPolicy(layers=tuple(layers), thresholds=thresholds, measure=measure, fill=fill)
    return Candidate(policy, loss(wrong), depth, _seconds(costs, shares, depths, fill, streams) / streams)


def _seconds(costs: StepCosts, shares: Sequence[float], depths: Sequence[int], fill: Fill, streams: int) -> float:
    """Of a step, by the mean rows of each range."""
    num_layers = depths[-1]
    seconds = costs.besides[streams] + _for_rows(costs.table.head.at, shares[-1] * streams)
    for share, after, start, stop in zip(shares, (*shares[1:], 0.0), depths, depths[1:], strict=False):
        rows, left = share * streams, (share - after) * streams
        seconds += costs.layers(rows, stop - start) + costs.table.call * min(1.0, rows)
        if stop == num_layers:
            break
        seconds += _for_rows(costs.ask.at, rows) + _for_rows(costs.place.at, left)
        if fill == "propagate":
            seconds += _for_rows(costs.fill.at, left) * (num_layers - stop)
        else:  # debts ride along, and each that finds too many before it goes deeper alone
            beside = (costs.layers(2, 1) - costs.layers(1, 1)) * left
            seconds += (num_layers - stop) * (beside + costs.layers(left / (MAX_PENDING + 1), 1))
    return seconds


def _for_rows(curve: Callable[[int], float], rows: float) -> float:
    """For a mean number of rows: below one, a share of one row's."""
    return curve(max(1, round(rows))) * min(1.0, rows)


def shortlist(found: Sequence[Candidate], budgets: Sequence[float], floors: Sequence[float] = ()) -> list[FrozenPolicy]:
    """For each measure the fastest within each budget of loss; and for each floor the fastest that loses nothing and
    runs at least so many layers, in case a fill costs quality that nobody could foresee.
    """
    chosen: dict[FrozenPolicy, None] = {}
    for measure in dict.fromkeys(each.policy.measure for each in found):
        own = [each for each in found if each.policy.measure == measure]
        least = min(each.loss for each in own)
        pools = [[each for each in own if each.loss <= max(budget, least)] for budget in budgets]
        pools += [[each for each in own if each.loss <= least and each.depth >= floor] for floor in floors]
        for pool in pools:
            if pool:
                chosen[min(pool, key=lambda each: each.seconds).policy] = None
    return list(chosen)
