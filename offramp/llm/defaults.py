"""The sampling settings a checkpoint recommends."""

from __future__ import annotations

from typing import Any

from offramp.core import SamplingParams
from offramp.model.generation import GenerationDefaults

NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def recommended_params(
    generation: GenerationDefaults, otherwise: SamplingParams, *, max_tokens: int | None
) -> SamplingParams:
    """The checkpoint's settings, with those it doesn't name off; `otherwise` if it names none.

    A checkpoint that says `do_sample: false` is greedy.
    """
    named: dict[str, Any] = {name: value for name in NAMES if (value := getattr(generation, name)) is not None}
    if generation.do_sample is False:
        named["temperature"] = 0.0
    return SamplingParams(max_tokens=max_tokens, **named) if named else otherwise
