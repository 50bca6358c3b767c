"""The rows that are still going deeper in one forward pass, and the debts they take along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offramp.cache.fill import FillState
from offramp.core import Ids, SequenceKey
from offramp.engine.pack import Batch, append_chain_rows
from offramp.model.executor import Hidden

DEBT = -1
"""Origin of a row that pays for an earlier token instead of being in the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Debt:
    """A committed token whose layers from `depth` on have no K/V yet."""

    token: int
    position: int
    depth: int
    hidden: Hidden  # one row, f32


class Flight:
    """Rows in the air. Before `leave` or `join`, the flight's rows are the batch's rows in order."""

    def __init__(self, hidden: Hidden, batch: Batch, debts: Mapping[SequenceKey, Sequence[Debt]]) -> None:
        self.hidden = hidden
        self.rows = batch.rows
        self.undecided = batch.exit_rows  # batch rows that the policy may still be asked about
        self._batch = batch
        self._origin = np.arange(len(batch.rows), dtype=np.int32)  # batch row, or DEBT
        self._owed = {s: list(debts[key]) for s, key in enumerate(batch.keys) if key in debts}

    def __len__(self) -> int:
        return len(self.rows)

    def index_of(self, rows: Ids) -> Ids:
        """Where these batch rows, all in the air, are in the flight."""
        where = np.full(len(self._batch.rows), -1, dtype=np.int32)
        own = np.flatnonzero(self._origin != DEBT)
        where[self._origin[own]] = own
        found: Ids = where[rows]
        assert (found >= 0).all(), "a row that left is asked for"
        return found

    def num_debts(self, sequence: int) -> int:
        """Debts of a sequence of the batch, waiting or in the air."""
        flying = np.count_nonzero((self._origin == DEBT) & (self.rows.sequence == sequence))
        return len(self._owed.get(sequence, ())) + int(flying)

    def debts_left(self, sequence: int) -> list[Debt]:
        return sorted(self._owed.get(sequence, ()), key=lambda debt: debt.position)

    def join(self, depth: int) -> None:
        """Debts that wait at this depth, of sequences in the air, come along."""
        present = set(self.rows.sequence.tolist()) if self._owed else set()
        joining: list[tuple[int, Debt]] = []
        for sequence in sorted(present & self._owed.keys()):
            joining += [(sequence, debt) for debt in self._owed[sequence] if debt.depth == depth]
            self._owed[sequence] = [debt for debt in self._owed[sequence] if debt.depth != depth]
        if not joining:
            return
        self.rows = append_chain_rows(
            self.rows,
            np.array([debt.token for _, debt in joining], dtype=np.int32),
            np.array([sequence for sequence, _ in joining], dtype=np.int32),
            np.array([debt.position for _, debt in joining], dtype=np.int32),
        )
        self.hidden = self.hidden.concat([debt.hidden for _, debt in joining])
        self._origin = np.concatenate([self._origin, np.full(len(joining), DEBT, dtype=np.int32)])

    def reach(self, start: int, stop: int) -> list[tuple[FillState, int, int, int, int]]:
        """The fill that running layers start..stop-1 will add; asserts that no row would read an unpaid position."""
        committed = self._batch.committed.tolist()
        reached: dict[int, list[int]] = {}
        for sequence, position in zip(self.rows.sequence.tolist(), self.rows.positions.tolist(), strict=True):
            if position < committed[sequence]:
                reached.setdefault(sequence, []).append(position)
        advances: list[tuple[FillState, int, int, int, int]] = []
        for sequence, positions in reached.items():
            fill, low, high = self._batch.caches[sequence].fill, min(positions), max(positions)
            assert high - low + 1 == len(positions), "rows of a sequence leave a hole"
            assert low <= fill.at(stop - 1), f"layer {stop - 1} is unpaid from {fill.at(stop - 1)} to {low}"
            advances.append((fill, low, high + 1, start, stop))
        return advances

    def decide(self, rows: Ids) -> None:
        """The policy chose these batch rows: it is not asked about them again."""
        self.undecided = np.setdiff1d(self.undecided, rows)

    def leave(self, rows: Sequence[int], depth: int) -> None:
        """These batch rows go no deeper; they and the debts flying with them stay behind as debts at `depth`."""
        if not rows:
            return
        sequences = self._batch.rows.sequence[list(rows)]
        with_them = (self._origin == DEBT) & np.isin(self.rows.sequence, sequences)
        going = np.isin(self._origin, rows) | with_them
        for index in np.flatnonzero(going).astype(np.int32):
            debt = Debt(
                token=int(self.rows.tokens[index]),
                position=int(self.rows.positions[index]),
                depth=depth,
                hidden=self.hidden.take(np.array([index], dtype=np.int32)),
            )
            self._owed.setdefault(int(self.rows.sequence[index]), []).append(debt)
        staying = np.flatnonzero(~going).astype(np.int32)
        self.rows = self.rows.take(staying)
        self.hidden = self.hidden.take(staying)
        self._origin = self._origin[staying]
