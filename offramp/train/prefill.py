"""Running whole texts through an executor that serves nobody: what training captures comes from here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.errors import NumericError

CHUNK = 256
"""Rows of one executor call."""


def num_shared(before: Ids, tokens: Ids) -> int:
    """How many tokens two sequences begin with: their K/V are the same, in the same slots."""
    same = before[: len(tokens)] == tokens[: len(before)]
    return len(same) if same.all() else int(same.argmin())


def chain_rows(tokens: Ids, start: int, stop: int) -> Rows:
    """Tokens start..stop-1 of one sequence that has the first pages to itself."""
    positions = np.arange(start, stop, dtype=np.int32)
    num_pages = -(-stop // PAGE_SIZE)
    return Rows(
        tokens=tokens[start:stop],
        sequence=np.zeros(stop - start, np.int32),
        positions=positions,
        slots=positions,
        prefix_lens=positions,
        ancestor_slots=np.zeros(0, np.int32),
        ancestor_starts=np.zeros(stop - start + 1, np.int32),
        page_ids=np.arange(num_pages, dtype=np.int32),
        page_starts=np.array([0, num_pages], np.int32),
    )


def halves(hidden: NDArray[np.float32], layer: int) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = hidden.astype(np.float16)
    if not np.isfinite(halves).all():
        raise NumericError(f"hidden states after {layer} layers exceed f16", hint="leave out this depth")
    return halves
