"""How many prompts a calibration takes, and how they are shared out."""

from __future__ import annotations

from offramp.errors import InvalidRequestError
from offramp.exits.calibration import hoeffding_bentkus_p, required_prompts

TUNING_SHARE = 4
"""Every so manieth prompt tunes, ..."""
MOST_TUNING = 100
"""... up to so many: more would hardly change what is chosen."""
BISECTIONS = 40


def num_tuning(count: int) -> int:
    """Prompts of these that choose what is tested; the others test it."""
    return min(count // TUNING_SHARE, MOST_TUNING)


def num_prompts(num_calibration: int) -> int:
    """The fewest prompts of which so many test, and one tunes."""
    count = max(num_calibration, TUNING_SHARE)
    while count - num_tuning(count) < num_calibration:
        count += 1
    return count


def check_enough(count: int, risk: float, delta: float) -> None:
    """Refuse a file on which even answers without any loss could not be certified, or that leaves none to tune with."""
    left = count - num_tuning(count)
    if num_tuning(count) >= 1 and hoeffding_bentkus_p(0.0, left, risk) <= delta:
        return
    fewest = num_prompts(required_prompts(risk, delta))
    usual = num_prompts(required_prompts(risk, delta, risk / 2))
    raise InvalidRequestError(
        f"{count} prompts are too few for risk={risk:g} at delta={delta:g}",
        hint=f"it takes {fewest} prompts if answers lose nothing, {usual} if they lose half the risk",
        param="prompts",
    )


def largest_loss(count: int, risk: float, delta: float) -> float:
    """The largest mean loss that passes a test on so many prompts."""
    low, high = 0.0, risk
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        passes = hoeffding_bentkus_p(middle * count, count, risk) <= delta
        low, high = (middle, high) if passes else (low, middle)
    return low
