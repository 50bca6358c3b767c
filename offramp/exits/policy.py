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
from offramp.model.executor import FINAL, HeadId, Hidden, LayerExecutor, LogitSummary

Fill = Literal["deferred", "propagate"]
"""What becomes of the K/V of skipped layers: paid later, exactly; or projected at once, which taints the sequence."""


class ExitRows:
    """Rows that one policy is asked about at one exit point; valid during that call of `decide`."""

    __slots__ = ("_executor", "_head", "_last", "_where", "hidden", "keys", "layer", "outputs", "previous")

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
        self._where: dict[int, tuple[LogitSummary, int]] = {}  # by row: what it is in, and which row of that
        self._last: tuple[list[int], LogitSummary] | None = None  # the rows computed last

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def head_ids(self) -> Ids | None:
        """The tokens that the columns of `logits` stand for, rising; None: the whole vocabulary."""
        return None if self._head == FINAL else self._executor.head_ids(self._head)

    @property
    def num_head_rows(self) -> int:
        """Rows whose logits were computed."""
        return len(self._where)

    def summary(self, rows: Sequence[int]) -> LogitSummary:
        """What the policy's head says of these distinct rows, at least one; read-only.

        No row is computed twice. A head costs much: ask for the rows that need it, in one call.
        """
        assert rows, "a summary of no rows"
        self.compute(rows)
        if self._last is not None and self._last[0] == rows:
            return self._last[1]
        parts = [self._where[row] for row in rows]
        return LogitSummary(
            np.stack([summary.logits[at] for summary, at in parts]),
            np.array([summary.best[at] for summary, at in parts], dtype=np.int32),
            np.stack([summary.scores[at] for summary, at in parts]),
        )

    def compute(self, rows: Sequence[int]) -> None:
        """See that the summary of these rows is there."""
        missing = [row for row in rows if row not in self._where]
        if not missing:
            return
        whole = missing == list(range(len(self.hidden)))
        hidden = self.hidden if whole else self.hidden.take(np.array(missing, dtype=np.int32))
        summary = self._executor.summarize(hidden, self._head)
        for at, row in enumerate(missing):
            self._where[row] = summary, at
        self._last = missing, summary

    def row_logits(self, row: int) -> NDArray[np.float32]:
        """Raw logits of one row that is computed already, [width]; read-only."""
        summary, at = self._where[row]
        logits: NDArray[np.float32] = summary.logits[at]
        return logits

    def likeliest(self, row: int) -> int | None:
        """The likeliest token of a row that is computed already; None: its largest logit is not finite."""
        summary, at = self._where[row]
        best = int(summary.best[at])
        if best < 0:
            return None
        ids = self.head_ids
        return best if ids is None else int(ids[best])


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
