"""Chi-square at the 99.9 % level, without scipy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NORMAL_999 = 3.0902  # 99.9 % quantile of the standard normal law


def chi_square(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def bound(degrees: int) -> float:
    """The 99.9 % quantile (Wilson and Hilferty's approximation)."""
    third = 2 / (9 * degrees)
    return float(degrees * (1 - third + NORMAL_999 * third**0.5) ** 3)


def fits(draws: NDArray[np.int64], law: NDArray[np.float64]) -> bool:
    """Whether independent draws from `law` could look like this; a token that the law forbids never fits."""
    counts = np.bincount(draws, minlength=len(law))
    if counts[law == 0].any():
        return False
    used = law > 0
    return chi_square(counts[used], law[used] * len(draws)) <= bound(int(used.sum()) - 1)
