"""The seam where a token may leave the network early.

A policy names exit points (numbers of layers) and decides, row by row, from the hidden states there. Only rows that
plain decoding runs for their logits are asked: never prompt rows, never rows with drafts behind them. A decision may
depend on the row alone (its hidden state, sequence and position), so that tokens don't depend on the batch or on
bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.model.executor import HeadId, Hidden


class ExitPolicy(Protocol):
    """Says which rows are finished at an exit point."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Exit points: layers run so far, ascending, each in 1..num_layers-1. Empty: never exit, never asked."""
        ...

    def head(self, layer: int) -> HeadId:
        """The head that turns hidden states at this exit point into logits."""
        ...

    def decide(self, layer: int, hidden: Hidden, keys: Sequence[SequenceKey], positions: Ids) -> NDArray[np.bool_]:
        """For each row of `hidden` whether its token comes from here; [rows]."""
        ...
