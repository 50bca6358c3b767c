"""Settings that are no numbers: a range on the command line lets NaN pass, and a pack that names one is not written."""

from __future__ import annotations

import math
from collections.abc import Mapping

from offramp.params import refused


def check_finite(settings: Mapping[str, object]) -> None:
    """Raise InvalidRequestError naming the first of a recipe's settings that is NaN or infinite."""
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise refused(name, value, "a finite number")
