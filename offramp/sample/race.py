"""The draw: an exponential race (Gumbel argmax) whose noise is keyed by seed, choice, output position and token id.

A token's noise does not depend on the other tokens, the batch or what was drawn before: the same target distribution at
the same place always yields the same token. That makes sampled speculation equal to plain sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.sample import elementary
from offramp.sample.philox import philox4x32, seed_key

TOKEN_DRAW, DRAFT_DRAW, ACCEPTANCE, RECOVERY = range(4)
"""Purpose words of the counter: the target's draw, a draft's, whether that stands, and the draw where it does not."""


def draft_draw(num_before: int) -> int:
    """The purpose of a free draw behind so many draft tokens.

    A position that is drafted again, since what came before it did not stand, gets other noise: what was decided with
    the first must not touch the second.
    """
    return DRAFT_DRAW + 4 * num_before


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseKey:
    """Where a draw stands: which request, which of its choices, which output position."""

    seed: int  # 64 bits
    choice: int
    position: int  # output tokens before this one


def uniforms(key: NoiseKey, token_ids: NDArray[np.int64], purpose: int = TOKEN_DRAW) -> NDArray[np.float64]:
    """One uniform per token id: an odd multiple of 2**-53, so exact and never 0 or 1."""
    counter = (token_ids, key.position, key.choice, purpose)
    w0, w1, _, _ = philox4x32(counter, seed_key(key.seed))
    k = ((w0 << np.uint64(32)) | w1) >> np.uint64(12)
    return (2 * k + np.uint64(1)).astype(np.float64) * 2.0**-53


def scaled(row: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """(logit - largest logit) / temperature: at most 0, so that no temperature overflows it to NaN.  # [vocab]"""
    centred = row.astype(np.float64) - np.float64(row.max())
    with np.errstate(over="ignore"):
        return centred / temperature


def race(row: NDArray[np.float32], temperature: float, key: NoiseKey) -> int:
    """The token drawn from softmax(row / temperature); ties go to the lowest id. Some logit must be finite."""
    ids = np.flatnonzero(row > -np.inf)
    noise = -elementary.log(-elementary.log(uniforms(key, ids)))
    return int(ids[np.argmax(scaled(row, temperature)[ids] + noise)])
