"""Runs the side layer of an eagle drafter: rows of it through an executor of one layer (see side.py).

rows = tokens of any number of sequences, taps = depths of the target, hidden = its width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.draft.side import units
from offramp.model.executor import HeadId, Hidden, LayerExecutor, Top
from offramp.model.hidden import ArrayHidden

Floats = NDArray[np.float32]
Product = Callable[[Floats], Floats]
"""RMSNorm with weights of its own, then a matrix: [rows, in] -> [rows, hidden]."""


@dataclass(frozen=True, slots=True, eq=False)
class SideModel:
    """The executor has one layer, the target's embedding, and `head` with the drafter's norm and tokens."""

    executor: LayerExecutor
    head: HeadId
    first: Product
    next: Product

    def fill(self, rows: Rows, states: Floats) -> None:
        """K/V alone of rows with states [rows, taps, hidden] of the places before their tokens."""
        self.executor.fill(self._joined(rows, states, self.first), rows, 0, 1)

    def run_first(self, rows: Rows, states: Floats) -> Hidden:
        """The layer's output for such rows."""
        return self.executor.run_layers(self._joined(rows, states, self.first), rows, 0, 1)

    def run_next(self, rows: Rows, own: Hidden) -> Hidden:
        """The layer's output for rows with its own output, of the places before their tokens, in place of states."""
        return self.executor.run_layers(self._joined(rows, own.numpy()[:, None], self.next), rows, 0, 1)

    def top(self, hidden: Hidden, count: int) -> Top:
        """The likeliest tokens behind each row."""
        return self.executor.top(hidden, count, self.head)

    def logits(self, hidden: Hidden) -> Floats:
        """[rows, vocab], -inf for tokens that it does not draft."""
        known = self.executor.head_ids(self.head)
        if known is None:
            return self.executor.logits(hidden, self.head)
        logits = np.full((len(hidden), self.executor.config.vocab_size), -np.inf, dtype=np.float32)
        logits[:, known] = self.executor.logits(hidden, self.head)
        return logits

    @property
    def num_tokens(self) -> int:
        """That it drafts."""
        known: Ids | None = self.executor.head_ids(self.head)
        return self.executor.config.vocab_size if known is None else len(known)

    def _joined(self, rows: Rows, states: Floats, product: Product) -> ArrayHidden:
        """The layer's input."""
        embedded = self.executor.embed(rows).numpy()[:, None]
        parts = units(np.concatenate([embedded, states], axis=1), self.executor.config.norm_eps)
        return ArrayHidden(product(parts.reshape(len(parts), -1)))
