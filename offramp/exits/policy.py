"""The seam where a token may leave the network early.

A policy names exit points (numbers of layers) and decides, row by row, what leaves there. Only rows that decode are
asked: never prompt rows, so never the first token of an output, and never rows with drafts behind them. A decision may
depend on the row alone (its hidden states, sequence and output position), so that tokens don't depend on the batch or
on bookkeeping.

Shapes: rows = rows of one policy at one exit point, width = the vocabulary of its head there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.model.executor import FINAL, HeadId, Hidden, LayerExecutor

Fill = Literal["deferred", "propagate"]
"""What becomes of the K/V of skipped layers: paid later, exactly; or projected at once, which taints the sequence."""


class ExitRows:
    """Rows that one policy is asked about at one exit point; valid during that call of `decide`."""

    __slots__ = ("_executor", "_head", "_last", "_logits", "hidden", "keys", "layer", "outputs", "previous")

    def __init__(
        self,
        executor: LayerExecutor,
        head: HeadId,
        *,
        layer: int,
        hidden: Hidden,
        previous: Hidden | None,
        keys: Sequence[SequenceKey],
        outputs: Ids,
    ) -> None:
        self.layer = layer  # layers run
        self.hidden = hidden  # [rows], after them
        self.previous = previous  # [rows], one layer earlier, if the policy wants it
        self.keys = keys  # [rows], each another sequence
        self.outputs = outputs  # [rows], index of the output token that the row yields; the first token's is 0
        self._executor = executor
        self._head = head
        self._logits: dict[int, NDArray[np.float32]] = {}  # by row, each [width]
        self._last: tuple[list[int], NDArray[np.float32]] | None = None  # the rows computed last, and their logits

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def head_ids(self) -> Ids | None:
        """The tokens that the columns of `logits` stand for, rising; None: the whole vocabulary."""
        return None if self._head == FINAL else self._executor.head_ids(self._head)

    @property
    def num_head_rows(self) -> int:
        """Rows whose logits were computed."""
        return len(self._logits)

    def logits(self, rows: Ids) -> NDArray[np.float32]:
        """Raw logits [len(rows), width] of these distinct rows, by the policy's head; read-only.

        No row's are computed twice. A head costs much: ask for the rows that need it, in one call.
        """
        asked = self.compute(rows)
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        if not asked:
            ids = self.head_ids
            return np.zeros((0, self._executor.config.vocab_size if ids is None else len(ids)), dtype=np.float32)
        return np.stack([self._logits[row] for row in asked])

    def compute(self, rows: Ids) -> list[int]:
        """See that the logits of these rows are there; returns the rows."""
        asked: list[int] = rows.tolist()
        missing = [row for row in asked if row not in self._logits]
        if missing:
            whole = len(missing) == len(self.hidden) and missing == asked == sorted(asked)
            hidden = self.hidden if whole else self.hidden.take(np.array(missing, dtype=np.int32))
            logits = self._executor.logits(hidden, self._head)
            self._logits.update(zip(missing, logits, strict=True))
            self._last = missing, logits
        return asked

    def row_logits(self, row: int) -> NDArray[np.float32]:
        """Those of one row that is computed already, [width]; read-only."""
        return self._logits[row]


class ExitPolicy(Protocol):
    """Says which rows are finished at an exit point."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Exit points: layers run so far, ascending, each in 1..num_layers-1. Empty: never asked."""
        ...

    @property
    def fill(self) -> Fill: ...

    @property
    def wants_previous(self) -> bool:
        """`ExitRows.previous` is there: steps then also stop one layer before each exit point."""
        ...

    @property
    def wants_labels(self) -> bool:
        """`observe` is told; only tokens whose skipped layers run later (`deferred`) have a label."""
        ...

    def head(self, layer: int) -> HeadId:
        """The head that turns hidden states at this exit point into logits."""
        ...

    def decide(self, rows: ExitRows) -> NDArray[np.bool_]:
        """For each row whether its token comes from here; [rows]."""
        ...

    def observe(self, layer: int, keys: Sequence[SequenceKey], outputs: Ids, agreed: NDArray[np.bool_]) -> None:
        """Learn, for tokens that left at this exit point, whether its likeliest token was that of full depth; [tokens].

        Told in the step that runs their last layer, which comes later or never: sequences end with debts unpaid.
        """
        ...

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended: drop all state kept for it. It may never have been asked about."""
        ...
