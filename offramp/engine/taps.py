"""Hidden states that a drafter looks at: taken at some depths of a step's forward pass, kept until it asks for them.

Who owns what: `open` says at the beginning of a step whose rows are wanted, the runner takes their hidden states along
its way, `keep` says at the end which drafts stand; states of all others are dropped. A sequence is watched for some
steps after somebody took its states or said that he will; then its rows run unseen, and what was kept of it goes. So
do rows of a sequence that its own first layers drafted for: they have passed depths before the pass begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from offramp.core import Ids, Request, SequenceKey
from offramp.draft.tapped import Seen
from offramp.engine.flight import Flight
from offramp.engine.pack import Batch
from offramp.engine.planner import PlanItem
from offramp.model.executor import Hidden

MOST_PLACES = 64
"""Kept of one sequence until the drafter asks: of a prompt its end, for a side layer runs it all before it drafts,
and is taught on no more. Twice as many before they are cut to that."""
WATCHED = 24
"""Steps with a token that a sequence is watched for, at its beginning and after each time somebody cared."""


@dataclass(slots=True, eq=False)
class _Run:
    """Places of one sequence that ran in one step: committed ones, then the nodes of its draft."""

    first: int
    count: int  # of the committed ones
    hidden: list[Hidden]  # by tap, [places + nodes, hidden]

    @property
    def stop(self) -> int:
        return self.first + self.count

    def settle(self, accepted: Sequence[int]) -> None:
        """Of the nodes these stand, one behind the other; they are committed now."""
        kept = [*range(self.count), *(self.count + node for node in accepted)]
        self.count = len(kept)
        self._take(kept)

    def cut(self, most: int) -> None:
        """Keep the last ones only."""
        if self.count > most:
            self.first, kept = self.stop - most, range(self.count - most, self.count)
            self.count = most
            self._take(kept)

    def _take(self, kept: Sequence[int]) -> None:
        if len(self.hidden[0]) != len(kept) or kept[-1] != len(kept) - 1:
            indices = np.array(kept, dtype=np.int32)
            self.hidden = [hidden.take(indices) for hidden in self.hidden]


@dataclass(slots=True, eq=False)
class _Kept:
    """What one sequence has: settled runs, each going on where the one before ends, and the newest one."""

    runs: list[_Run] = field(default_factory=list)
    newest: _Run | None = None  # whose drafts are not judged yet

    def settle(self, accepted: Sequence[int] = ()) -> None:
        run, self.newest = self.newest, None
        if run is None:
            return
        run.settle(accepted)
        run.cut(MOST_PLACES)
        if self.runs and self.runs[-1].stop != run.first:
            self.runs.clear()
        self.runs.append(run)
        if run.stop - self.runs[0].first > 2 * MOST_PLACES:
            first = run.stop - MOST_PLACES
            self.runs = [each for each in self.runs if each.stop > first]
            self.runs[0].cut(self.runs[0].stop - first)


class Taps:
    """Implements `TappedStates` over one engine. `wants` says whose states are looked at, by their requests."""

    def __init__(self, depths: Sequence[int], wants: Callable[[Request], bool]) -> None:
        assert list(depths) == sorted(set(depths)), depths
        assert depths[0] > 0, depths
        self._depths = tuple(depths)
        self._wants = wants
        self._wanted: set[SequenceKey] = set()  # in the step at work
        self._left: dict[SequenceKey, int] = {}  # steps that a sequence is watched for still
        self._expected = True
        self._kept: dict[SequenceKey, _Kept] = {}

    @property
    def num_places(self) -> int:
        """Kept, of all sequences."""
        return sum(run.count for kept in self._kept.values() for run in kept.runs)

    def open(self, items: Sequence[PlanItem]) -> None:
        """A step begins with these plan items."""
        self._wanted = set()
        for item in items:
            key = item.task.sequence.key
            if not self._wants(item.task.sequence.request):
                continue
            left = self._left.setdefault(key, WATCHED if self._expected else 0)
            if left:
                self._wanted.add(key)
                self._left[key] = left - item.yields
            else:
                self._kept.pop(key, None)

    def tap(self, batch: Batch) -> Tapping | None:
        """For one forward pass; None where nobody's states are wanted."""
        ahead = {int(batch.rows.sequence[row]) for row in batch.started}
        wanted = {index: key for index, key in enumerate(batch.keys) if key in self._wanted and index not in ahead}
        return Tapping(self._depths, batch, wanted) if wanted else None

    def put(self, tapping: Tapping) -> None:
        """The pass is through: its hidden states count."""
        for run, key in tapping.runs():
            kept = self._kept.setdefault(key, _Kept())
            kept.settle()
            kept.newest = run

    def keep(self, key: SequenceKey, accepted: Sequence[int]) -> None:
        """Of a sequence's drafts these nodes stand, from the root to the leaf."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.settle(accepted)

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended."""
        self._kept.pop(key, None)
        self._left.pop(key, None)

    def expect(self, wanted: bool) -> None:
        self._expected = wanted

    def watch(self, key: SequenceKey) -> None:
        if key in self._left:
            self._left[key] = WATCHED
            self._wanted.add(key)  # asked about while its step drafts: the step's rows count

    def take(self, key: SequenceKey, stop: int) -> Seen | None:
        self.watch(key)
        kept = self._kept.get(key)
        if kept is None:
            return None
        kept.settle()
        if not kept.runs or kept.runs[-1].stop != stop:
            return None
        runs, kept.runs = kept.runs, []
        parts = [
            np.concatenate([hidden.numpy() for hidden in run.hidden], axis=1) for run in runs
        ]  # [places, all taps]
        states = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return Seen(runs[0].first, states.reshape(len(states), len(self._depths), -1))


class Tapping:
    """One forward pass whose hidden states are taken at some depths, of some sequences of its batch."""

    def __init__(self, depths: Sequence[int], batch: Batch, wanted: dict[int, SequenceKey]) -> None:
        self._depths = depths
        self._batch = batch
        self._wanted = wanted
        if len(wanted) == len(batch.keys):
            self._rows: Ids = np.arange(len(batch.rows), dtype=np.int32)
        else:
            self._rows = np.flatnonzero(np.isin(batch.rows.sequence, list(wanted))).astype(np.int32)
        self._hidden: list[Hidden] = []

    def next_stop(self, depth: int, last: int) -> int:
        """The next depth to stop at, at most `last`."""
        return min((each for each in self._depths if depth < each < last), default=last)

    def see(self, flight: Flight) -> None:
        """The flight has reached a depth."""
        if flight.depth in self._depths:
            self._hidden.append(flight.take(flight.hidden, self._rows))

    def runs(self) -> list[tuple[_Run, SequenceKey]]:
        """What ran of each sequence."""
        assert len(self._hidden) == len(self._depths), "a depth was passed over"
        rows = self._batch.rows
        sequences, positions = rows.sequence[self._rows], rows.positions[self._rows]
        found: list[tuple[_Run, SequenceKey]] = []
        for index, key in self._wanted.items():
            own = np.flatnonzero(sequences == index).astype(np.int32)
            first = int(positions[own[0]])
            hidden = self._hidden if len(own) == len(self._rows) else [each.take(own) for each in self._hidden]
            found.append((_Run(first, int(self._batch.committed[index]) - first, list(hidden)), key))
        return found
