"""Philox4x32-10: a counter-based generator, so noise is a function of its key and counter and has no state.

Known answers of the published generator are checked in tests/sample/test_philox.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)

Words = NDArray[np.uint64]  # 32-bit words held in 64 bits, so that products don't overflow


def philox4x32(counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[int, int]) -> tuple[Words, ...]:
    """The four output words for each counter; the four counter words broadcast against each other."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> HALF) ^ c1 ^ np.uint64(k0),
            second & LOW,
            (first >> HALF) ^ c3 ^ np.uint64(k1),
            first & LOW,
        )
        k0 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF
        k1 = (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def seed_key(seed: int) -> tuple[int, int]:
    """A 64-bit seed as the generator's key: low word, high word."""
    return seed & 0xFFFFFFFF, seed >> 32
