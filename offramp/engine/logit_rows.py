"""Rows of logits over the whole vocabulary, put together from heads that know all of it or some.

The memory is kept from step to step: fresh pages would take longer than writing them, and a row that had its logits
from the same tokens before needs only those written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids


class LogitRows:
    """As many rows as a step ever needed. Nobody else writes them."""

    def __init__(self, vocab_size: int) -> None:
        self._rows = np.empty((0, vocab_size), dtype=np.float32)
        self._known: list[Ids | None] = []  # of each row: the tokens that are not -inf; None: perhaps all

    def first(self, count: int) -> NDArray[np.float32]:
        """The first rows, [count, vocab]; valid until they are written again."""
        return self._rows[:count]

    def reserve(self, count: int) -> None:
        """See that there are so many rows; what rows hold is lost if there were fewer."""
        if len(self._rows) < count:
            self._rows = np.empty((count, self._rows.shape[1]), dtype=np.float32)
            self._known = [None] * count

    def put(self, row: int, logits: NDArray[np.float32], ids: Ids | None) -> None:
        """Set a row to the logits of these tokens, -inf for all others; without ids they are those of all tokens."""
        target = self._rows[row]
        if ids is None:
            target[:] = logits
        else:
            if self._known[row] is not ids:
                target.fill(-np.inf)
            target[ids] = logits
        self._known[row] = ids
