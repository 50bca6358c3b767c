"""How fast a policy would be at one stream, from scored tokens and costs: every step replayed in arithmetic.

Shapes: tokens, exits as in `scores.py`; of a policy only its own exit points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from offramp.calibrate.costs import ExitCosts
from offramp.calibrate.scores import SIMILARITY, ScoredTokens
from offramp.exits.frozen import FrozenPolicy

MAX_PENDING = 4
"""The engine's own bound on tokens that wait for their skipped layers."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """At one stream, without the first token of each answer."""

    gain: float  # decoding speed over that of full depth
    depth: float  # mean layers that a token's logits took, first ones included


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What a policy would do with tokens whose past is full depth's."""

    left: NDArray[np.int64]  # [tokens], index of the exit point, or their number for what stays
    judged: NDArray[np.bool_]  # [tokens, exits], a predictor or a head was asked
    headed: NDArray[np.bool_]  # [tokens, exits], the head was asked


def decide(scored: ScoredTokens, policy: FrozenPolicy) -> Decisions:
    """As `ThresholdPolicy` decides."""
    columns = [scored.layers.index(layer) for layer in policy.layers]
    scores = scored.measures[policy.measure][:, columns].astype(np.float64)
    hopeful = np.repeat(scored.asked[:, None], len(columns), axis=1)
    if policy.predictor != "none":
        guesses = scored.predictors[policy.predictor][:, columns].astype(np.float64)
        hopeful = hopeful & (guesses >= np.array(policy.predictor_thresholds))
    leaves = hopeful & (scores >= np.array(policy.thresholds))
    left = np.where(leaves.any(axis=1), leaves.argmax(axis=1), len(columns))
    arrives = scored.asked[:, None] & (np.arange(len(columns)) <= left[:, None])
    return Decisions(left, arrives, arrives & hopeful)


def predict(scored: ScoredTokens, policy: FrozenPolicy, costs: ExitCosts, num_layers: int) -> Prediction:
    """Replay all tokens; debts and forced rows included."""
    done = decide(scored, policy)
    depths = np.array([*policy.layers, num_layers])[done.left]
    num_decoded = int(scored.asked.sum())
    if num_decoded == 0:
        return Prediction(1.0, float(depths.mean()))
    seconds = _asking(done, policy, costs) + num_decoded * costs.step
    seconds += costs.head * int((scored.asked & (depths == num_layers)).sum())
    replay = _propagated if policy.fill == "propagate" else _deferred
    seconds += replay(scored, policy, depths, costs, num_layers)
    return Prediction(num_decoded * costs.full(num_layers) / seconds, float(depths.mean()))


def _asking(done: Decisions, policy: FrozenPolicy, costs: ExitCosts) -> float:
    heads = np.array([costs.ask[layer] for layer in policy.layers])
    total = float((done.headed.sum(axis=0) * heads).sum())
    if policy.predictor != "none":
        total += float(done.judged.sum()) * costs.predict[policy.predictor]
    return total


def _stops(policy: FrozenPolicy) -> tuple[int, ...]:
    before = [layer - 1 for layer in policy.layers if policy.predictor == SIMILARITY and layer > 1]
    return tuple(sorted({*policy.layers, *before}))


def _propagated(
    scored: ScoredTokens, policy: FrozenPolicy, depths: NDArray[np.int64], costs: ExitCosts, num_layers: int
) -> float:
    """Layers, and the projections of what they skip."""
    stops = np.array(_stops(policy))
    decoded = depths[scored.asked]
    num_calls = (stops[None, :] < decoded[:, None]).sum() + len(decoded)
    skipped = (num_layers - decoded).sum()
    return float(num_calls * costs.call + decoded.sum() * costs.layer[0] + skipped * costs.fill)


def _deferred(
    scored: ScoredTokens, policy: FrozenPolicy, depths: NDArray[np.int64], costs: ExitCosts, num_layers: int
) -> float:
    """Layers, with the debts that tokens take along on their way."""
    stops = _stops(policy)

    @cache
    def way(debts: tuple[int, ...], until: int, leaving: int) -> float:
        """From the embedding to a depth; debts join where they wait, and nothing is asked behind `leaving`."""
        total, depth = 0.0, 0
        for stop in sorted({*(s for s in stops if s <= leaving), *debts, until} & set(range(until + 1))):
            total += costs.range(1 + sum(debt <= depth for debt in debts), stop - depth)
            depth = stop
        return total

    total = 0.0
    debts: tuple[int, ...] = ()
    for depth, asked in zip(depths.tolist(), scored.asked.tolist(), strict=True):
        if not asked:
            debts = ()  # another answer
        elif depth == num_layers or len(debts) >= MAX_PENDING:
            total += way(debts, num_layers, depth)
            debts = ()
        else:
            total += way(debts, depth, depth)
            debts = tuple(sorted([*(max(debt, depth) for debt in debts), depth]))
    return total
