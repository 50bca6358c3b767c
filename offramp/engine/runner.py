"""Runs a batch through layer ranges; owns the hidden states of rows that left early.

A range ends where a policy of the batch is to be asked, or where debts come along; a batch of full requests is one
range. A row that leaves at an exit point either has its deeper K/V projected at once (`propagate`, approximate), or
keeps its hidden state here as a debt (`deferred`, exact): the next row of that sequence that goes deeper takes the
debts along, at the depth where each waits, so no layer reads what is unpaid. With `max_pending` debts the next row goes
deeper at once; its token still comes from the exit it would have taken, so tokens never depend on when debts are paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, SequenceKey
from offramp.engine.exit_points import Exit, ExitBatching, ExitPoints
from offramp.engine.flight import Advance, Debt, Flight, Label
from offramp.engine.logit_rows import LogitRows
from offramp.engine.outcome import Outcome
from offramp.engine.pack import NO_ROWS, Batch
from offramp.engine.statistics import Statistics
from offramp.engine.taps import Taps
from offramp.exits.policy import ExitPolicy
from offramp.model.executor import Hidden, LayerExecutor


class Runner:
    """The only caller of the executor's layers, but for what `DraftRows` runs ahead of it."""

    def __init__(
        self,
        executor: LayerExecutor,
        policies: Mapping[str, ExitPolicy],
        *,
        batching: ExitBatching,
        max_pending: int,
        statistics: Statistics,
        taps: Taps | None = None,
    ) -> None:
        self._executor = executor
        self._policies = policies
        self._taps = taps
        self._batching: ExitBatching = batching
        self._max_pending = max_pending
        self._statistics = statistics
        self._num_layers = executor.config.num_layers
        self._debts: dict[SequenceKey, list[Debt]] = {}
        self._logits = LogitRows(executor.config.vocab_size)

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
        flight = Flight(self._executor, batch, self._debts)
        points = ExitPoints(self._executor, self._policies, batch.candidates, self._batching, self._statistics)
        advances = _begun(batch)
        propagated: list[Exit] = []
        tapping = self._taps.tap(batch) if self._taps is not None else None
        while flight.goes_on and flight.depth < self._num_layers:
            flight.join()
            before, stop = flight.hidden, flight.next_join(points.next_stop(flight.depth, self._num_layers))
            if tapping is not None:
                stop = tapping.next_stop(flight.depth, stop)
            advances += flight.run(self._executor, stop)
            if tapping is not None:
                tapping.see(flight)
            if stop < self._num_layers:
                propagated += self._leave(flight, points.ask(flight, before), batch)
        propagated += self._propagate(points.staying, batch)
        outcome, labels = self._outcome(flight, batch, points.exits)
        for fill, first, count, start, end in advances:
            fill.advance(first, count, start, end)
        if self._taps is not None and tapping is not None:
            self._taps.put(tapping)
        self._taint(propagated, batch)
        self._settle(batch, flight)
        self._tell(labels)
        return outcome

    def _leave(self, flight: Flight, exits: Sequence[Exit], batch: Batch) -> list[Exit]:
        """These rows leave, or pay if they owe too much; returns the exits whose deeper K/V was projected."""
        if not exits:
            return []
        propagated = self._propagate(exits, batch)
        owing: list[int] = []
        others = [row for exit_ in propagated for row in exit_.rows.tolist()]
        for exit_ in exits:
            if exit_.policy.fill == "deferred":
                for row in exit_.rows.tolist():
                    if flight.num_debts(int(batch.rows.sequence[row])) < self._max_pending:
                        owing.append(row)
                    else:
                        self._statistics.num_forced_rows += 1
        if owing or others:
            flight.leave(owing, others)
        return propagated

    def _propagate(self, exits: Sequence[Exit], batch: Batch) -> list[Exit]:
        """Project the K/V that these exits skip from their own hidden states, where their policy says so."""
        propagated = [exit_ for exit_ in exits if exit_.policy.fill == "propagate"]
        for exit_ in propagated:
            rows = batch.rows if len(exit_.rows) == len(batch.rows) else batch.rows.take(exit_.rows)
            self._executor.fill(exit_.hidden, rows, exit_.layer, self._num_layers)
            self._statistics.num_propagated_rows += len(rows)
        return propagated

    def _outcome(self, flight: Flight, batch: Batch, exits: Sequence[Exit]) -> tuple[Outcome, list[tuple[Label, int]]]:
        """Logits of all places, and of each paid label's token what full depth says; one head call for both."""
        num_places = len(batch.logit_rows)
        layers = np.full(num_places, self._num_layers, dtype=np.int32)
        for exit_ in exits:
            layers[exit_.places] = exit_.layer
        rest = np.flatnonzero(layers == self._num_layers)
        labels = flight.paid_labels() if len(flight) else []
        logits = self._final_logits(flight, batch.logit_rows[rest], [index for _, index in labels])
        best = [(label, int(row.argmax())) for (label, _), row in zip(labels, logits[len(rest) :], strict=True)]
        tokens: dict[int, int] = {}
        for exit_ in exits:
            tokens |= exit_.tokens()
        drawn = self._drawn(exits, tokens, rest.tolist(), logits)
        hidden: list[Hidden | None] = [
            flight.hidden.take(flight.index_of(rows)) if len(rows) else None for rows in batch.prompt_rows
        ]
        return Outcome(drawn, layers, hidden, tokens), best

    def _drawn(
        self, exits: Sequence[Exit], tokens: Mapping[int, int], rest: Sequence[int], final: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Logits of all places but those of `tokens`, in order; the first rows of `final` are those of `rest`."""
        early = {
            place: (exit_.asked, row)
            for exit_ in exits
            for place, row in zip(exit_.places, exit_.picked, strict=True)
            if place not in tokens
        }
        if not early:
            return final[: len(rest)]
        full = dict(zip(rest, final, strict=False))
        places = sorted([*early, *full])
        self._logits.reserve(len(places))
        for index, place in enumerate(places):
            if place in full:
                self._logits.put(index, full[place], None)
            else:
                asked, row = early[place]
                self._logits.put(index, asked.row_logits(row), asked.head_ids)
        return self._logits.first(len(places))

    def _final_logits(self, flight: Flight, rows: Ids, others: Sequence[int]) -> NDArray[np.float32]:
        """Full depth's logits of these batch rows, then of others by their index in the flight."""
        if len(rows) + len(others) == 0:
            return np.empty((0, self._executor.config.vocab_size), dtype=np.float32)
        indices = flight.index_of(rows) if len(rows) else NO_ROWS
        if others:
            indices = np.concatenate([indices, np.array(others, dtype=np.int32)])
        whole = len(indices) == len(flight) and indices.tolist() == list(range(len(flight)))
        return self._executor.logits(flight.hidden if whole else flight.hidden.take(indices))

    def _taint(self, propagated: Sequence[Exit], batch: Batch) -> None:
        """Their sequences have K/V in all layers, and what is there from these rows on is approximate."""
        for exit_ in propagated:
            for row in exit_.rows.tolist():
                fill, position = batch.caches[int(batch.rows.sequence[row])].fill, int(batch.rows.positions[row])
                fill.advance(position, position + 1, exit_.layer, self._num_layers)
                fill.taint(position)

    def _settle(self, batch: Batch, flight: Flight) -> None:
        if not batch.candidates:
            return  # who owes is a candidate: one token behind, past its prompt
        self._statistics.num_paid_debts += len(flight.aboard)
        for index, key in enumerate(batch.keys):
            owed = flight.waiting(index)
            if owed:
                self._debts[key] = owed
            else:
                self._debts.pop(key, None)

    def _tell(self, labels: Sequence[tuple[Label, int]]) -> None:
        """Tell policies whether exits agreed with full depth, whose likeliest token comes with each label."""
        groups: dict[tuple[int, int], list[tuple[Label, int]]] = {}
        for label, token in labels:
            groups.setdefault((id(label.policy), label.layer), []).append((label, token))
        for (_, layer), told in groups.items():
            told[0][0].policy.observe(
                layer,
                [label.key for label, _ in told],
                np.array([label.output for label, _ in told], dtype=np.int32),
                np.array([label.token == token for label, token in told], dtype=np.bool_),
            )


def _begun(batch: Batch) -> list[Advance]:
    """The fill that committed rows brought which were run while their step drafted."""
    advances: list[Advance] = []
    for row, each in batch.started.items():
        sequence, position = int(batch.rows.sequence[row]), int(batch.rows.positions[row])
        if position < batch.committed[sequence]:
            advances.append((batch.caches[sequence].fill, position, position + 1, 0, each.depth))
    return advances


def _slots(pages: Sequence[int]) -> Ids:
    """All slots of these pages."""
    slots: Ids = np.repeat(np.array(pages, dtype=np.int32), PAGE_SIZE) * PAGE_SIZE
    slots += np.tile(np.arange(PAGE_SIZE, dtype=np.int32), len(pages))
    return slots
