"""Which big-little policies to test, safest first: all of a grid, replayed over the big model's own answers.

All of it is chosen on tuning answers; the tests on other prompts keep the promise whatever is chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from offramp.calibrate.candidates import Candidate, rising
from offramp.calibrate.little_scores import PairTokens
from offramp.calibrate.predict import Prediction
from offramp.collaborate.big_little_policy import NEVER, BigLittlePolicy
from offramp.exits.path import REACH

UNSURE = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8)
"""Shares of the tokens that fallbacks leave to the big model, as far as the little one's sureness says."""
ROLLBACKS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
RUNS = (3, 6, 10, 16)


@dataclass(frozen=True, slots=True)
class PairCosts:
    """Seconds at one stream."""

    round: float  # a token of the little model
    verify: Callable[[int], float]  # a step of the big one with so many rows, everything but the rounds included


@dataclass(slots=True)
class Replay:
    """What a policy would come to over one answer, if the text stayed the big model's."""

    num_tokens: int = 0
    num_differing: int = 0
    seconds: float = 0.0


def candidates(
    scored: PairTokens, costs: PairCosts, *, num_layers: int, risk: float
) -> list[Candidate[BigLittlePolicy]]:
    """Those of the grid that no safer one outruns, up to somewhat more than the risk; losses and gains rise."""
    some = [
        Candidate(policy, mean_loss, Prediction(gain, float(num_layers)))
        for policy in _grid(scored)
        for mean_loss, gain in [_worth(scored, costs, policy)]
        if mean_loss <= REACH * risk
    ]
    return rising(some)


def replay(scored: PairTokens, costs: PairCosts, policy: BigLittlePolicy) -> list[Replay]:
    """One an answer. Behind a token that is cut, the little model is taken to be as sure as it is of the text."""
    sure = scored.sure >= policy.fallback
    stands = scored.agreed | (scored.losses < policy.rollback)
    starts = np.flatnonzero(np.diff(scored.prompts, prepend=-1)).tolist()
    ends = [*starts[1:], len(scored.prompts)]
    return [
        _replayed(sure[a:b].tolist(), stands[a:b].tolist(), scored.agreed[a:b].tolist(), costs, policy.max_run)
        for a, b in zip(starts, ends, strict=True)
    ]


def _replayed(
    sure: Sequence[bool], stands: Sequence[bool], agreed: Sequence[bool], costs: PairCosts, max_run: int
) -> Replay:
    told, at = Replay(), 0
    while at < len(sure):
        written = 0
        while written < max_run and at + written < len(sure) and sure[at + written]:
            written += 1
        rounds = written + (written < max_run and at + written < len(sure))
        kept = next((place for place in range(written) if not stands[at + place]), written)
        told.seconds += rounds * costs.round + costs.verify(1 + written)
        told.num_differing += sum(not agreed[at + place] for place in range(kept))
        at += kept + 1
    told.num_tokens = len(sure)
    return told


def _worth(scored: PairTokens, costs: PairCosts, policy: BigLittlePolicy) -> tuple[float, float]:
    """Mean loss of an answer, and speed over that of the big model alone."""
    told = replay(scored, costs, policy)
    mean_loss = sum(each.num_differing / each.num_tokens for each in told) / len(told)
    seconds = sum(each.seconds for each in told)
    return mean_loss, sum(each.num_tokens for each in told) * costs.verify(1) / seconds


def _grid(scored: PairTokens) -> Iterator[BigLittlePolicy]:
    known = scored.sure[(scored.sure > 0) & (scored.sure < NEVER)]
    fallbacks = sorted(set(np.quantile(known, UNSURE, method="lower").tolist())) if len(known) else []
    for fallback, rollback, max_run in product(fallbacks, ROLLBACKS, RUNS):
        yield BigLittlePolicy(fallback=fallback, rollback=rollback, max_run=max_run)
