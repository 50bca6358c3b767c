"""Runs the side layer of an eagle drafter: rows of it through an executor of one layer (see side.py).

rows = tokens of any number of sequences, taps = depths of the target, hidden = its width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.model.executor import HeadId, Hidden, LayerExecutor
from offramp.model.tensors import Matrix, Vector

Floats = NDArray[np.float32]
Guesses = list[list[tuple[int, float]]]
"""For each row its likeliest tokens, from the likeliest on, and the share of each: exp(logit - log_sum_exp)."""
NO_IDS: Ids = np.zeros(0, dtype=np.int32)


class SideExecutor(LayerExecutor, Protocol):
    """An executor of one layer whose input can be joined from tokens and states."""

    def add_join(self, matrix: Matrix, norm: Vector) -> int:
        """Register a way to join, matrix [hidden, parts * hidden] @ (norm * units), see side.py; returns its number."""
        ...

    def run_joined(
        self, join: int, rows: Rows, states: Floats, chosen: Ids, head: HeadId, num_guesses: int
    ) -> tuple[Hidden, Guesses]:
        """The layer's output for rows with states [rows, parts - 1, hidden]; of those that are chosen (rising).

        If none is, K/V alone are written. Guesses behind each chosen row are the `top` of its output; none for 0.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SideModel:
    """The executor has one layer, the target's embedding, and `head` with the drafter's norm and tokens."""

    executor: SideExecutor
    head: HeadId
    first: int  # of its joins
    next: int

    def fill(self, rows: Rows, states: Floats) -> None:
        """K/V alone of rows with states [rows, taps, hidden] of the places before their tokens."""
        self.executor.run_joined(self.first, rows, states, NO_IDS, self.head, 0)

    def run_first(self, rows: Rows, states: Floats, chosen: Ids, num_guesses: int = 0) -> tuple[Hidden, Guesses]:
        """The layer's output for the chosen ones of such rows, and so many guesses behind each."""
        return self.executor.run_joined(self.first, rows, states, chosen, self.head, num_guesses)

    def run_next(self, rows: Rows, own: Hidden, num_guesses: int = 0) -> tuple[Hidden, Guesses]:
        """The same for rows with the layer's own output, of the places before their tokens, in place of states."""
        states, chosen = own.numpy()[:, None], np.arange(len(rows), dtype=np.int32)
        return self.executor.run_joined(self.next, rows, states, chosen, self.head, num_guesses)

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
