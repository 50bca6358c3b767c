"""Running whole texts through an executor that serves nobody: what training captures comes from here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.errors import NumericError

CHUNK = 256
"""Rows of one executor call."""


def chain_rows(tokens: Ids, start: int, stop: int) -> Rows:
    """Tokens start..stop-1 of one sequence that has the first pages to itself."""
    return Rows.chain(tokens, start, stop, np.arange(-(-stop // PAGE_SIZE), dtype=np.int32))


def halves(hidden: NDArray[np.float32], layer: int) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = hidden.astype(np.float16)
    if not np.isfinite(halves).all():
        raise NumericError(f"hidden states after {layer} layers exceed f16", hint="leave out this depth")
    return halves
