"""How fast a policy really decodes at one stream, beside full depth, prompt by prompt in turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from offramp.calibrate.answers import Rig, Tell, end, located
from offramp.calibrate.prompts import CalibrationPrompt

GAIN_PROMPTS = 9
"""Prompts that are timed; the median of their gains counts, as neighbours on the machine disturb some."""


def measured_gain(rig: Rig, prompts: Sequence[CalibrationPrompt], policy: str, tell: Tell) -> float:
    """Decoding speed under the policy over that of full depth; 1 where no prompt has two steps to time."""
    gains: list[float] = []
    for number, prompt in enumerate(prompts[:GAIN_PROMPTS]):
        order = (policy, None) if number % 2 else (None, policy)
        seconds = {which: seconds_a_token(rig, prompt, which) for which in order}
        full, early = seconds[None], seconds[policy]
        if full is not None and early is not None:
            gains.append(full / early)
        tell(number + 1, min(len(prompts), GAIN_PROMPTS))
    return median(gains) if gains else 1.0


def seconds_a_token(rig: Rig, prompt: CalibrationPrompt, policy: str | None) -> float | None:
    """Of the tokens behind those of the first step; None if there are none."""
    began = ended = 0.0
    num_tokens = 0  # of later steps
    try:
        rig.engine.add_request(rig.request("timed", prompt, policy))
        while rig.engine.has_work:
            for event in rig.engine.step():
                if event.error is not None:
                    raise located(event.error, prompt)
                ended = time.perf_counter()
                num_tokens += len(event.token_ids) if began else 0
                began = began or ended
    finally:
        end(rig.engine, ["timed"])
    return (ended - began) / num_tokens if num_tokens else None
