"""Which requests a certificate of two models covers, that compared answers drawn in one way."""

from __future__ import annotations

from offramp.core import SamplingParams
from offramp.exits.certificate import SamplingSettings


def why_not_covered(params: SamplingParams, sampling: SamplingSettings, max_tokens: int | None) -> str | None:
    """Why answers drawn so say nothing of a request, naming the field; None: they do."""
    if params.structured_outputs is not None:
        return "structured_outputs were not part of the calibration"
    for name in ("stop", "stop_token_ids"):
        if getattr(params, name):  # it would end an answer otherwise than those that were compared
            return f"{name} was not part of the calibration"
    return sampling.why_not(params, max_tokens)
