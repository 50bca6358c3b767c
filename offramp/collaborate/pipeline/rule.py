"""When a pipeline's big model answers: a threshold, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.collaborate.pipeline.spec import PipelineSpec
from offramp.collaborate.threshold import ThresholdCalibration, calls_big


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`calibrated_share` is that of calls on the calibration's `num_prompts` prompts; None where there are none."""

    threshold: float
    calibrated_share: float | None
    num_prompts: int = 0
    risk: float | None = None

    def calls_big(self, score: float) -> bool:
        return calls_big(score, self.threshold)


def rule_of(spec: PipelineSpec, calibration: ThresholdCalibration | None) -> Rule:
    """Raises InvalidRequestError for a risk that is not certified."""
    if spec.threshold is not None and calibration is None:
        return Rule(threshold=spec.threshold, calibrated_share=None)
    assert calibration is not None, "checked with the spec"
    if spec.risk is not None:
        entry = calibration.for_risk(spec.risk)
        return Rule(
            threshold=entry.threshold,
            calibrated_share=entry.big_share,
            num_prompts=entry.num_prompts,
            risk=entry.risk,
        )
    threshold = spec.threshold if spec.big_share is None else calibration.for_share(spec.big_share)
    assert threshold is not None, "checked with the spec"
    share, count = calibration.big_share(threshold), len(calibration.scores)
    return Rule(threshold=threshold, calibrated_share=share, num_prompts=count)
