"""When a pipeline's big model answers: a threshold, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.collaborate.pipeline.spec import PipelineSpec
from offramp.collaborate.threshold import ThresholdCalibration, calls_big


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`calibrated_share` is that of calls on the calibration's prompts; None where there are none."""

    threshold: float
    calibrated_share: float | None
    risk: float | None = None

    def calls_big(self, score: float) -> bool:
        return calls_big(score, self.threshold)


def rule_of(spec: PipelineSpec, calibration: ThresholdCalibration | None) -> Rule:
    """Raises InvalidRequestError for a risk that is not certified."""
    if spec.threshold is not None:
        share = None if calibration is None else calibration.big_share(spec.threshold)
        return Rule(threshold=spec.threshold, calibrated_share=share)
    assert calibration is not None, "checked with the spec"
    if spec.big_share is not None:
        threshold = calibration.for_share(spec.big_share)
        return Rule(threshold=threshold, calibrated_share=calibration.big_share(threshold))
    assert spec.risk is not None
    entry = calibration.for_risk(spec.risk)
    return Rule(threshold=entry.threshold, calibrated_share=entry.big_share, risk=entry.risk)
