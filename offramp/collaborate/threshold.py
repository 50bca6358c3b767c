"""From scores to calls of the big model: the rule, and thresholds for a share of calls or a loss of quality.

What: each prompt, or each answer of the little model, has a score in [0, 1) that says how much the big model is needed.
The big one is called where the score reaches a threshold: 0 calls it always, 1 never, and the share of calls never
rises with the threshold.
When it helps: a threshold means nothing without the scores of prompts like those to come: `ThresholdCalibration` keeps
some, and what was certified on them.
Cost: a comparison.
Exactness: a share holds on the calibration's prompts; on others it drifts (`offramp.collaborate.pipeline.drift`). A
certified loss holds with confidence 1 - delta over the calibration, for prompts drawn from the same traffic.
Source: Learn then Test (arXiv 2110.01052); the rule and its calibration by share are RouteLLM's (arXiv 2406.18665).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.errors import InvalidRequestError
from offramp.exits.calibration import Losses, check_delta, check_risk, check_sample, fixed_sequence
from offramp.params import check_number, refused

Scores = NDArray[np.float64]  # [prompts], each in [0, 1)

ALWAYS_BIG, NEVER_BIG = 0.0, 1.0
BELOW_ONE = float(np.nextafter(1.0, 0.0))
PATH_STEPS = 20
"""Thresholds that are tested, from calling nearly always to never."""


def bounded(values: NDArray[np.floating]) -> Scores:
    """Estimates as scores: in [0, 1), so that a threshold of 1 calls nobody. NaN asks for the big model."""
    numbers = np.where(np.isnan(values), BELOW_ONE, values.astype(np.float64))
    scores: Scores = np.clip(numbers, 0.0, BELOW_ONE)
    return scores


def check_threshold(threshold: object) -> None:
    """Refuse what is not a number in [0, 1]; NaN never is."""
    check_number("threshold", threshold, ALWAYS_BIG, NEVER_BIG)


def calls_big(score: float, threshold: float) -> bool:
    """The rule."""
    return score >= threshold


def share_at(scores: Scores, threshold: float) -> float:
    """Share of these prompts for which the big model is called."""
    check_threshold(threshold)
    return float(np.mean(scores >= threshold))


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedThreshold:
    """With this threshold the mean loss of a prompt is at most `risk`, with confidence 1 - delta."""

    risk: float
    delta: float
    threshold: float
    big_share: float  # of the calibration's prompts
    num_prompts: int
    mean_loss: float
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThresholdCalibration:
    """Scores of a sample of prompts, and what was certified on them."""

    scores: Scores  # rising
    certified: tuple[CertifiedThreshold, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.scores) > 0
        assert (np.diff(self.scores) >= 0).all()

    def big_share(self, threshold: float) -> float:
        """That a threshold had on the sample."""
        return share_at(self.scores, threshold)

    def for_share(self, share: float) -> float:
        """The threshold whose share on the sample is nearest to the one asked for; of two equal ones the cheaper."""
        check_number("big_share", share, 0.0, 1.0)
        thresholds = np.concatenate([[ALWAYS_BIG], np.unique(self.scores)[1:], [NEVER_BIG]])
        shares = 1 - np.searchsorted(self.scores, thresholds) / len(self.scores)
        distances = np.abs(shares - share)
        nearest = np.flatnonzero(distances <= distances.min() + 1e-12)
        return float(thresholds[nearest[-1]])

    def for_risk(self, risk: float) -> CertifiedThreshold:
        """The certified threshold of a risk up to this one that calls the big model least.

        Raises InvalidRequestError where there is none.
        """
        check_risk(risk)
        within = [each for each in self.certified if each.risk <= risk]
        if not within:
            known = ", ".join(f"{each.risk:g}" for each in self.certified) or "none"
            hint = f"certified risks: {known}; calibrate for this one, or with more prompts"
            raise InvalidRequestError(f"risk={risk:g} is not certified", hint=hint, param="risk")
        return min(within, key=lambda each: (each.big_share, each.risk))


def path_of(scores: Scores) -> list[float]:
    """Thresholds to test, safest first, from scores of prompts that the test will not see."""
    levels = np.arange(1, PATH_STEPS) / PATH_STEPS
    inside = np.quantile(scores, levels)
    return [*dict.fromkeys(float(each) for each in inside), NEVER_BIG]


def certify(
    scores: Scores, losses: Losses, path: Sequence[float], *, risk: float, delta: float
) -> CertifiedThreshold | None:
    """The last threshold of the path up to which all pass; None if the first fails.

    `losses`, in [0, 1], are those of the little model's answer to each prompt; the big one's lose nothing.
    Neither may have been seen when scores were learned or the path was chosen. Raises InvalidRequestError for a
    sample on which nothing could pass.
    """
    check_risk(risk)
    check_delta(delta)
    check_sample(len(scores), risk, delta)
    if len(scores) != len(losses):
        raise refused("losses", f"{len(losses)} of them", f"one for each of {len(scores)} scores")
    walk = fixed_sequence(path, lambda threshold: np.where(scores >= threshold, 0.0, losses), risk, delta)
    if not walk.passed:
        return None
    last = walk.passed[-1]
    return CertifiedThreshold(
        risk=risk,
        delta=delta,
        threshold=last.setting,
        big_share=share_at(scores, last.setting),
        num_prompts=last.num_prompts,
        mean_loss=last.mean_loss,
        p_value=last.p_value,
    )
