"""exp and log in f64 by fixed sequences of correctly rounded operations.

The C++ kernel computes the same sequences, so a drawn token does not depend on anybody's libm, on vector width or on
numpy's version. Both are accurate to a few units in the last place. No fused multiply-add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693147180369123816490  # ln 2 with 21 trailing zero bits: its products with small integers are exact
LN2_LOW = 1.90821492927058770002e-10
EXP_MIN = -708.0
EXP_TERMS = [1.0 / math.factorial(i) for i in range(13, -1, -1)]
LOG_TERMS = [1.0 / (2 * i + 1) for i in range(10, 0, -1)]
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def exp(x: Doubles) -> Doubles:
    """e**x for x <= 0; exactly 1 at 0 and exactly 0 below -708 (also at -inf)."""
    clamped = np.maximum(x, EXP_MIN)
    n = np.rint(clamped * LOG2_E)
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    power = ((n.astype(np.int64) + 1023) << 52).view(np.float64)
    return np.where(x < EXP_MIN, 0.0, _horner(EXP_TERMS, r) * power)


def log(x: Doubles) -> Doubles:
    """Natural logarithm of positive normal numbers."""
    bits = np.ascontiguousarray(x).view(np.int64)
    exponent = (bits - SQRT_HALF_BITS) >> 52
    m = (bits - (exponent << 52)).view(np.float64)  # in [sqrt(1/2), sqrt(2))
    e = exponent.astype(np.float64)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    twice = s + s
    tail = twice * (z * _horner(LOG_TERMS, z))
    return e * LN2_HIGH + (twice + (tail + e * LN2_LOW))


def _horner(terms: Sequence[float], x: Doubles) -> Doubles:
    total = np.full_like(x, terms[0])
    for term in terms[1:]:
        total = total * x + term
    return total
