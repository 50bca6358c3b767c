"""The rows that are still going deeper in one forward pass, and the debts they take along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offramp.cache.fill import FillState
from offramp.core import Ids, Rows, SequenceKey
from offramp.engine.pack import Batch, append_chain_rows
from offramp.exits.policy import ExitPolicy
from offramp.model.executor import Hidden, LayerExecutor

Advance = tuple[FillState, int, int, int, int]
"""Arguments of `FillState.advance` for later: first, count, start, stop."""


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """A token that left early, to be told what full depth would have said."""

    policy: ExitPolicy
    layer: int
    key: SequenceKey
    output: int
    token: int | None  # the likeliest by the exit's head; None: its largest logit is not finite


@dataclass(frozen=True, slots=True, eq=False)
class Debt:
    """A committed token whose layers from `depth` on have no K/V yet."""

    token: int
    position: int
    depth: int
    hidden: Hidden  # one row, f32
    label: Label | None  # None: nobody wants to know


@dataclass(slots=True)
class _Span:
    """The committed positions start..stop-1 of a sequence that are in the air, all of them: `count` many."""

    start: int
    stop: int
    count: int

    def add(self, position: int) -> None:
        self.start = min(self.start, position)
        self.stop = max(self.stop, position + 1)
        self.count += 1


class Flight:
    """Rows in the air: those of the batch in order, without the ones that left, then the debts aboard.

    Few rows fly in most steps, so what is known of each is kept in lists: numpy's calls would cost more.
    """

    def __init__(self, executor: LayerExecutor, batch: Batch, debts: Mapping[SequenceKey, Sequence[Debt]]) -> None:
        self.aboard: list[tuple[int, Debt]] = []  # (sequence, debt) of the last rows
        self.labels: dict[int, Label] = {}  # of batch rows in the air whose token comes from an exit
        self._batch = batch
        self._started = dict(batch.started)  # rows that wait deeper down
        self._own = [row for row in range(len(batch.rows)) if row not in batch.started]  # of each row but the debts
        self._spans = _spans(batch, self._own)
        self.depth = 0 if self._own else min(each.depth for each in self._started.values())
        if self._own:
            self.rows = batch.rows.take(np.array(self._own, dtype=np.int32)) if batch.started else batch.rows
            self.hidden = executor.embed(self.rows)
        else:
            self._take_up()
        self._waiting = {s: list(debts[key]) for s, key in enumerate(batch.keys) if key in debts} if debts else {}
        self._num_debts = {s: len(waiting) for s, waiting in self._waiting.items()}

    def __len__(self) -> int:
        return len(self._own) + len(self.aboard)

    @property
    def goes_on(self) -> bool:
        """Somebody is in the air, or will be."""
        return len(self) > 0 or bool(self._started)

    def num_debts(self, sequence: int) -> int:
        """Debts of a sequence of the batch, waiting or in the air."""
        return self._num_debts.get(sequence, 0)

    def waiting(self, sequence: int) -> list[Debt]:
        """Debts of a sequence that are not in the air."""
        return self._waiting.get(sequence, [])

    def index_of(self, rows: Ids) -> Ids:
        """Where these batch rows, all in the air, are in the flight."""
        if len(self._own) == len(self._batch.rows):
            return rows
        where = {row: index for index, row in enumerate(self._own)}
        return np.array([where[row] for row in rows.tolist()], dtype=np.int32)

    def take(self, hidden: Hidden, rows: Ids) -> Hidden:
        """Of hidden states of the whole flight those of these batch rows, in rising order."""
        return hidden if len(rows) == len(hidden) else hidden.take(self.index_of(rows))

    def next_join(self, last: int) -> int:
        """The next depth at which debts or rows that were started come along, at most `last`."""
        if not (self._waiting or self._started):
            return last
        depths = [debt.depth for sequence in self._spans for debt in self.waiting(sequence)]
        depths += [each.depth for each in self._started.values()]
        return min((depth for depth in depths if self.depth < depth < last), default=last)

    def join(self) -> None:
        """Rows that wait at this depth come along: those started, and debts of sequences in the air."""
        if self._started:
            if not len(self):
                self.depth = max(self.depth, min(each.depth for each in self._started.values()))
            self._take_up()
        if not self._waiting:
            return
        joining: list[tuple[int, Debt]] = []
        for sequence in self._spans:
            waiting = self._waiting.get(sequence)
            if waiting:
                joining += [(sequence, debt) for debt in waiting if debt.depth == self.depth]
                self._waiting[sequence] = [debt for debt in waiting if debt.depth != self.depth]
        if not joining:
            return
        self.rows = append_chain_rows(
            self.rows,
            np.array([debt.token for _, debt in joining], dtype=np.int32),
            np.array([sequence for sequence, _ in joining], dtype=np.int32),
            np.array([debt.position for _, debt in joining], dtype=np.int32),
        )
        self.hidden = self.hidden.concat([debt.hidden for _, debt in joining])
        self.aboard += joining
        for sequence, debt in joining:
            self._spans[sequence].add(debt.position)

    def _take_up(self) -> None:
        """Rows that were started, and wait at this depth, join those of the batch, in its order."""
        joining = {row: each for row, each in self._started.items() if each.depth == self.depth}
        if not joining:
            return
        assert all(each.depth >= self.depth for each in self._started.values()), "left behind"
        hidden = [each.hidden for each in joining.values()]
        alone = not len(self)
        self.hidden = hidden[0].concat(hidden[1:]) if alone else self.hidden.concat(hidden)
        num_own, num_debts = len(self._own), len(self.aboard)
        came = [*self._own, *joining]  # batch rows; in `hidden` the debts lie between the two
        order = sorted(range(len(came)), key=came.__getitem__)
        places = [index if index < num_own else index + num_debts for index in order]
        places += range(num_own, num_own + num_debts)
        rows = self._batch.rows.take(np.array(list(joining), dtype=np.int32))
        self._own = [came[index] for index in order]
        owned = self._batch.rows.take(np.array(self._own, dtype=np.int32))
        self.rows = owned if not num_debts else self._with_debts(owned)
        self.hidden = self.hidden.take(np.array(places, dtype=np.int32))
        for row in joining:
            del self._started[row]
        for sequence, position in zip(rows.sequence.tolist(), rows.positions.tolist(), strict=True):
            if position < self._batch.committed[sequence]:
                _add(self._spans, sequence, position)

    def _with_debts(self, rows: Rows) -> Rows:
        """These rows, then those of the debts aboard."""
        return append_chain_rows(
            rows,
            np.array([debt.token for _, debt in self.aboard], dtype=np.int32),
            np.array([sequence for sequence, _ in self.aboard], dtype=np.int32),
            np.array([debt.position for _, debt in self.aboard], dtype=np.int32),
        )

    def run(self, executor: LayerExecutor, stop: int) -> list[Advance]:
        """Go down to `stop`; returns the fill that this adds. Asserts that no row reads an unpaid position."""
        advances: list[Advance] = []
        for sequence, span in self._spans.items():
            fill = self._batch.caches[sequence].fill
            assert span.stop - span.start == span.count, "rows of a sequence leave a hole"
            assert span.start <= fill.at(stop - 1), (
                f"layer {stop - 1} is unpaid from {fill.at(stop - 1)} to {span.start}"
            )
            advances.append((fill, span.start, span.stop, self.depth, stop))
        self.hidden = executor.run_layers(self.hidden, self.rows, self.depth, stop)
        self.depth = stop
        return advances

    def leave(self, owing: Sequence[int], others: Sequence[int]) -> None:
        """These batch rows go no deeper. Those owing, and the debts flying with them, wait here as debts."""
        gone = {*owing, *others}
        with_them = {int(self._batch.rows.sequence[row]) for row in owing}
        staying: list[int] = []
        own: list[int] = []
        for index, row in enumerate(self._own):
            if row not in gone:
                staying.append(index)
                own.append(row)
        aboard: list[tuple[int, Debt]] = []
        for index, (sequence, debt) in enumerate(self.aboard, start=len(self._own)):
            if sequence in with_them:
                self._waiting[sequence].append(replace(debt, depth=self.depth, hidden=self._hidden_at(index)))
                self._spans[sequence].count -= 1
            else:
                staying.append(index)
                aboard.append((sequence, debt))
        self._owe(owing)
        self._own, self.aboard = own, aboard
        self._land(gone)
        if staying:
            indices = np.array(staying, dtype=np.int32)
            self.rows, self.hidden = self.rows.take(indices), self.hidden.take(indices)

    def _land(self, rows: Iterable[int]) -> None:
        """These batch rows, the last of their sequences, are no longer in the air."""
        for row in rows:
            sequence = int(self._batch.rows.sequence[row])
            span = self._spans[sequence]
            span.count -= 1
            span.stop -= 1
            if span.count == 0:
                del self._spans[sequence]

    def paid_labels(self) -> list[tuple[Label, int]]:
        """Labels of rows that have run all layers, with their index in the flight."""
        if not (self.labels or self.aboard):
            return []
        own = [(self.labels[row], index) for index, row in enumerate(self._own) if row in self.labels]
        debts = enumerate(self.aboard, start=len(self._own))
        return own + [(debt.label, index) for index, (_, debt) in debts if debt.label is not None]

    def _owe(self, rows: Sequence[int]) -> None:
        """New debts for batch rows in the air, whose hidden states are those of this depth."""
        batch = self._batch.rows
        for row, index in zip(rows, self.index_of(np.array(rows, dtype=np.int32)).tolist(), strict=True):
            sequence = int(batch.sequence[row])
            debt = Debt(
                token=int(batch.tokens[row]),
                position=int(batch.positions[row]),
                depth=self.depth,
                hidden=self._hidden_at(index),
                label=self.labels.pop(row, None),
            )
            self._waiting.setdefault(sequence, []).append(debt)
            self._num_debts[sequence] = self._num_debts.get(sequence, 0) + 1

    def _hidden_at(self, index: int) -> Hidden:
        return self.hidden if len(self.hidden) == 1 else self.hidden.take(np.array([index], dtype=np.int32))


def _spans(batch: Batch, rows: Sequence[int]) -> dict[int, _Span]:
    """The committed ones among these rows of a batch, by sequence."""
    committed = batch.committed.tolist()
    sequences, positions = batch.rows.sequence.tolist(), batch.rows.positions.tolist()
    spans: dict[int, _Span] = {}
    for row in rows:
        if positions[row] < committed[sequences[row]]:
            _add(spans, sequences[row], positions[row])
    return spans


def _add(spans: dict[int, _Span], sequence: int, position: int) -> None:
    span = spans.get(sequence)
    if span is None:
        spans[sequence] = _Span(position, position + 1, 1)
    else:
        span.add(position)
