"""Which policies to test, safest first: for each measure and predictor a path through thresholds, and the best path.

All of it is chosen on tuning answers; the tests on other prompts keep the promise whatever is chosen here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from offramp.calibrate.costs import ExitCosts
from offramp.calibrate.predict import Prediction, predict
from offramp.calibrate.scores import ScoredTokens
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.measures import MEASURES
from offramp.exits.path import TuningTokens, threshold_path
from offramp.exits.policy import Fill

MAX_POINTS = 6
"""Policies that may be tested for one risk, each by answers to all calibration prompts."""
PASSING = (0.99, 0.95, 0.85)
"""Shares of the tokens on which an exit agrees that its predictor lets pass: the lower, the fewer heads run."""


class Policy(Hashable, Protocol):
    """Of whatever kind, frozen."""

    def fields(self) -> dict[str, object]:
        """As JSON."""
        ...


P = TypeVar("P", bound=Policy)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[P]):
    """A policy and what the tuning answers say of it."""

    policy: P
    loss: float  # mean over answers of the share of tokens with another token than full depth's
    predicted: Prediction


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """Who lets tokens through to the heads, and at which scores."""

    predictor: str
    thresholds: tuple[float, ...]  # [exits]; empty if there is nobody


OPEN = Gate("none", ())


def best_path(
    scored: ScoredTokens, costs: ExitCosts, *, num_layers: int, fill: Fill, risk: float, passable: float
) -> list[Candidate[FrozenPolicy]]:
    """The path whose best policy with a loss of at most `passable` is fastest; losses and gains rise along it.

    Empty where no policy is predicted to beat full depth.
    """
    saved, asked = _savings(scored, costs, num_layers, fill)

    def path(measure: str, gate: Gate) -> list[Candidate[FrozenPolicy]]:
        tokens = TuningTokens(_gated(scored, measure, gate), scored.agreed, scored.prompts, saved, asked)
        candidates = []
        for point in threshold_path(tokens, risk, max_points=MAX_POINTS):
            policy = _policy(scored.layers, point.thresholds, measure, gate, fill)
            candidates.append(Candidate(policy, point.loss, predict(scored, policy, costs, num_layers)))
        return rising(candidates)

    def worth(candidates: Sequence[Candidate[FrozenPolicy]]) -> float:
        return max((each.predicted.gain for each in candidates if each.loss <= passable), default=0.0)

    plain = {measure: path(measure, OPEN) for measure in MEASURES}
    measure = max(plain, key=lambda name: worth(plain[name]))
    return max([plain[measure], *(path(measure, gate) for gate in _gates(scored))], key=worth)


def rising(candidates: Sequence[Candidate[P]]) -> list[Candidate[P]]:
    """By loss, without those that are no faster than a safer one, or than full depth."""
    kept: list[Candidate[P]] = []
    for each in sorted(candidates, key=lambda each: (each.loss, -each.predicted.gain)):
        if each.predicted.gain > (kept[-1].predicted.gain if kept else 1.0):
            kept.append(each)
    return kept


def _gates(scored: ScoredTokens) -> Iterator[Gate]:
    """For each predictor thresholds that let some share of the agreeing tokens pass."""
    for name, scores in scored.predictors.items():
        for share in PASSING:
            thresholds = []
            for column in range(len(scored.layers)):
                agreeing = scores[scored.agreed[:, column], column]
                known = agreeing[np.isfinite(agreeing)].astype(np.float64)
                thresholds.append(float(np.quantile(known, 1 - share, method="lower")) if len(known) else 1.0)
            yield Gate(name, tuple(thresholds))


def _gated(scored: ScoredTokens, measure: str, gate: Gate) -> NDArray[np.float32]:
    """The measure where the gate lets tokens through, NaN elsewhere; [tokens, exits]."""
    scores = scored.measures[measure]
    if gate is OPEN:
        return scores
    passed = scored.predictors[gate.predictor].astype(np.float64) >= np.array(gate.thresholds)
    return np.where(passed, scores, np.float32(np.nan))


def _policy(layers: Sequence[int], thresholds: Sequence[float], measure: str, gate: Gate, fill: Fill) -> FrozenPolicy:
    """With those exit points alone at which something may leave."""
    used = [index for index, threshold in enumerate(thresholds) if threshold <= 1.0]
    return FrozenPolicy(
        layers=tuple(layers[index] for index in used),
        thresholds=tuple(thresholds[index] for index in used),
        measure=measure,
        predictor=gate.predictor,
        predictor_thresholds=tuple(gate.thresholds[index] for index in used) if gate.thresholds else (),
        fill=fill,
    )


def _savings(
    scored: ScoredTokens, costs: ExitCosts, num_layers: int, fill: Fill
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds that leaving at each exit point saves, about, and that asking there costs; [exits] both."""
    skipped = np.array([num_layers - layer for layer in scored.layers], np.float64)
    later = costs.fill if fill == "propagate" else costs.layer[1] - costs.layer[0]  # what a skipped layer still costs
    saved = skipped * (costs.layer[0] - later) + costs.head
    asked = np.array([costs.ask[layer] + costs.call for layer in scored.layers])
    return saved, asked
