"""The one primitive: run a range of layers over a ragged batch of rows.

Every depth policy (prefill, decode, early exit, self-speculation, verification, backfill) composes `LayerExecutor`;
nobody writes a second forward pass. Implementations: `offramp.native.NativeExecutor` and the numpy twin in
`offramp.testing`.

Shapes: rows = rows of this call, hidden = model width, vocab = vocabulary size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.model.config import ModelConfig
from offramp.model.heads import HeadWeights
from offramp.model.tensors import LayerWeights

HeadId = NewType("HeadId", int)
FINAL = HeadId(0)
"""The model's own head: final norm, then the LM head (or the tied embedding)."""


class Hidden(Protocol):
    """Hidden states of some rows, f32 [rows, hidden], wherever the executor keeps them. Immutable for callers."""

    def __len__(self) -> int: ...

    def take(self, indices: Ids) -> Self:
        """The chosen rows, in that order (a copy)."""
        ...

    def concat(self, others: Sequence[Self]) -> Self:
        """These rows followed by those of `others` (a copy)."""
        ...

    def numpy(self) -> NDArray[np.float32]:
        """The values in host memory, [rows, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class Top:
    """The k largest logits of each row, ties to the lowest id, and its log-sum-exp over all tokens of the head."""

    ids: Ids  # [rows, k]
    logits: NDArray[np.float32]  # [rows, k], descending
    log_sum_exp: NDArray[np.float32]  # [rows]


@dataclass(frozen=True, slots=True, eq=False)
class LogitSummary:
    """Logits of some rows by one head, and of each row its likeliest token and how sure of it the head is.

    Docs: arithmetic.md. A row without a finite largest logit has no likeliest token, and NaN for scores.
    """

    logits: NDArray[np.float32]  # [rows, n], n = tokens of the head
    best: Ids  # [rows], place of the largest among the n, the first of equal ones; -1: none is finite
    scores: NDArray[np.float32]  # [rows, SCORES]


TOP_PROBABILITY, MARGIN, ENTROPY = range(3)
"""Columns of `LogitSummary.scores`."""
SCORES = 3


class LayerExecutor(Protocol):
    """Runs layer ranges and owns the K/V memory; knows layers, pages and rows, never requests."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def num_pages(self) -> int:
        """Pages of K/V memory: valid page ids are 0..num_pages-1."""
        ...

    def embed(self, rows: Rows) -> Hidden:
        """Embeddings of the rows' tokens, [rows, hidden] f32."""
        ...

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        """Hidden states after layer stop - 1; writes the rows' K/V of layers start..stop-1. Does not change `h`.

        No two rows of a call write the same slot.
        """
        ...

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        """Write K/V of layers start..stop-1 projected from `h` alone: no attention, no MLP (propagation; not exact).

        No two rows of a call write the same slot.
        """
        ...

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        """Logits [rows, vocab], or [rows, len(vocab_ids)] for a subset, equal bit for bit to those columns.

        A head that does not know all tokens has [rows, len(head_ids(head))], and a subset of those only.
        """
        ...

    def top(self, h: Hidden, k: int, head: HeadId = FINAL) -> Top:
        """The k best of `logits`, 1 <= k <= tokens of the head, without copying them all out."""
        ...

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        """`logits`, and what they say of each row."""
        ...

    def copy_slots(self, source: Ids, target: Ids) -> None:
        """Copy K/V at all layers between physical slots (page id * 32 + offset), as if all reads came first.

        No two copies of a call have the same target.
        """
        ...

    def add_head(self, weights: HeadWeights) -> HeadId:
        """Register an exit or drafter head. Raises CorruptModelError for one that does not fit the model.

        Keeps vectors by reference. No head changes a bit of another.
        """
        ...

    def head_ids(self, head: HeadId) -> Ids | None:
        """The tokens that a head knows, ascending; None: all."""
        ...

    def add_side_layer(self, weights: LayerWeights) -> int:
        """Register a layer with K/V of its own; its id (>= config.num_layers) is valid in ranges of length one."""
        ...
