"""Runs a batch through layer ranges; owns the hidden states of rows that left early.

A row that leaves at an exit point keeps its hidden state here as a debt: its deeper layers have no K/V. The next row of
that sequence that goes deeper takes the debts along, at the depth where each waits, so no layer reads what is unpaid.
With `max_pending` debts the next row goes deeper at once; its token still comes from the exit it would have taken, so
tokens never depend on when debts are paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from offramp.cache.fill import FillState
from offramp.core import PAGE_SIZE, Ids, SequenceKey
from offramp.engine.flight import Debt, Flight
from offramp.engine.pack import Batch
from offramp.exits.policy import ExitPolicy
from offramp.model.executor import FINAL, Hidden, LayerExecutor


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What the rows of a batch came to."""

    logits: NDArray[np.float32]  # [logit rows, vocab]
    exit_layers: Ids  # [logit rows], layers run to get them
    prompt_hidden: list[Hidden | None]  # [seqs], final hidden states of the prompt rows asked for


@dataclass(frozen=True, slots=True, eq=False)
class _Exit:
    """Rows whose tokens come from one exit point."""

    rows: Ids  # batch rows
    layer: int
    logits: NDArray[np.float32]  # [rows, vocab]


class Runner:
    """The only caller of the executor's layers."""

    def __init__(self, executor: LayerExecutor, policy: ExitPolicy, *, max_pending: int) -> None:
        num_layers = executor.config.num_layers
        self._executor = executor
        self._policy = policy
        self._max_pending = max_pending
        self._bounds = (0, *policy.layers, num_layers)
        assert all(shallow < deep for shallow, deep in pairwise(self._bounds)), self._bounds
        self._debts: dict[SequenceKey, list[Debt]] = {}

    @property
    def has_exit_points(self) -> bool:
        """Without them a step is one call through all layers."""
        return len(self._bounds) > 2

    def num_pending(self, key: SequenceKey) -> int:
        return len(self._debts.get(key, ()))

    def forget(self, key: SequenceKey) -> None:
        """Drop a sequence's debts: it ended, or lost its pages."""
        self._debts.pop(key, None)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole pages (source, target), all reads first."""
        if copies:
            self.copy_slots(_slots([source for source, _ in copies]), _slots([target for _, target in copies]))

    def copy_slots(self, source: Ids, target: Ids) -> None:
        """Copy K/V between physical slots, all reads first."""
        self._executor.copy_slots(source, target)

    def logits(self, hidden: Hidden) -> NDArray[np.float32]:
        """Logits of final hidden states, [rows, vocab]."""
        return self._executor.logits(hidden)

    def forward(self, batch: Batch) -> Outcome:
        """Run every row as deep as it goes. Fill and debts change only once all layers have run."""
        flight = Flight(self._executor.embed(batch.rows), batch, self._debts)
        exits: list[_Exit] = []
        advances: list[tuple[FillState, int, int, int, int]] = []
        for start, stop in pairwise(self._bounds):
            flight.join(start)
            advances += flight.reach(start, stop)
            flight.hidden = self._executor.run_layers(flight.hidden, flight.rows, start, stop)
            if stop < self._bounds[-1]:
                exits += self._ask(flight, batch, stop)
            if len(flight) == 0:
                break
        outcome = self._outcome(flight, batch, exits)
        for fill, first, count, start, stop in advances:
            fill.advance(first, count, start, stop)
        self._settle(batch, flight)
        return outcome

    def _ask(self, flight: Flight, batch: Batch, layer: int) -> list[_Exit]:
        """Let the policy choose among the rows that may leave; those it chooses leave, or pay if they owe too much."""
        asked = flight.undecided
        if len(asked) == 0:
            return []
        hidden = flight.hidden.take(flight.index_of(asked))
        sequences = batch.rows.sequence[asked]
        keys = [batch.keys[s] for s in sequences]
        chosen = np.flatnonzero(self._policy.decide(layer, hidden, keys, batch.rows.positions[asked])).astype(np.int32)
        if len(chosen) == 0:
            return []
        rows = asked[chosen]
        logits = self._executor.logits(hidden.take(chosen), self._policy.head(layer))
        flight.decide(rows)
        leaving = [row for row in rows.tolist() if flight.num_debts(int(batch.rows.sequence[row])) < self._max_pending]
        flight.leave(leaving, layer)
        return [_Exit(rows, layer, logits)]

    def _outcome(self, flight: Flight, batch: Batch, exits: list[_Exit]) -> Outcome:
        hidden: list[Hidden | None] = [
            flight.hidden.take(flight.index_of(rows)) if len(rows) else None for rows in batch.prompt_rows
        ]
        wanted = batch.logit_rows
        layers = np.full(len(wanted), self._bounds[-1], dtype=np.int32)
        if not exits:
            logits = self._final_logits(flight, wanted)
            return Outcome(logits, layers, hidden)
        place = {row: index for index, row in enumerate(wanted.tolist())}
        logits = np.empty((len(wanted), self._executor.config.vocab_size), dtype=np.float32)
        for group in exits:
            at = [place[row] for row in group.rows.tolist()]
            logits[at] = group.logits
            layers[at] = group.layer
        rest = np.flatnonzero(layers == self._bounds[-1])
        if len(rest):
            logits[rest] = self._final_logits(flight, wanted[rest])
        return Outcome(logits, layers, hidden)

    def _final_logits(self, flight: Flight, rows: Ids) -> NDArray[np.float32]:
        if len(rows) == 0:
            return np.zeros((0, self._executor.config.vocab_size), dtype=np.float32)
        hidden = flight.hidden
        if len(rows) < len(hidden):
            hidden = hidden.take(flight.index_of(rows))
        return self._executor.logits(hidden, FINAL)

    def _settle(self, batch: Batch, flight: Flight) -> None:
        for index, key in enumerate(batch.keys):
            owed = flight.debts_left(index)
            if owed:
                self._debts[key] = owed
            else:
                self._debts.pop(key, None)


def _slots(pages: Sequence[int]) -> Ids:
    """All slots of these pages."""
    slots: Ids = np.repeat(np.array(pages, dtype=np.int32), PAGE_SIZE) * PAGE_SIZE
    slots += np.tile(np.arange(PAGE_SIZE, dtype=np.int32), len(pages))
    return slots
