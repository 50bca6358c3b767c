"""Asks the policies at the exit points of one forward pass, and says who leaves there.

`compact`: who is chosen leaves at once. `barrier`: the chosen fly on until every row that may exit is chosen; each
keeps the token of its own exit point. `literal`, as published: who is sure once waits for the others, and all take the
token of the depth where the last of them is sure, so that tokens depend on the batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from offramp.core import Ids
from offramp.engine.flight import Flight, Label
from offramp.engine.logit_rows import LogitRows
from offramp.engine.pack import NO_ROWS, Candidates
from offramp.engine.statistics import Statistics
from offramp.exits.policy import ExitPolicy, ExitRows
from offramp.model.executor import Hidden, LayerExecutor

ExitBatching = Literal["compact", "barrier", "literal"]


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """Rows whose tokens come from one exit point."""

    policy: ExitPolicy
    asked: ExitRows
    picked: Ids  # which of those asked
    rows: Ids  # batch rows
    places: Ids  # entries of logit_rows

    @property
    def layer(self) -> int:
        return self.asked.layer

    @property
    def hidden(self) -> Hidden:
        """At the exit point."""
        hidden = self.asked.hidden
        return hidden if len(self.picked) == len(hidden) else hidden.take(self.picked)

    def write(self, logits: LogitRows) -> None:
        """Put the rows' logits where their tokens are drawn."""
        ids = self.asked.head_ids
        for place, row in zip(self.places.tolist(), self.picked.tolist(), strict=True):
            logits.put(place, self.asked.row_logits(row), ids)

    def labels(self) -> list[Label]:
        """What to tell the policy about these rows once full depth is known."""
        ids, asked = self.asked.head_ids, self.asked
        best = [int(asked.row_logits(row).argmax()) for row in self.picked.tolist()]
        tokens: list[int] = best if ids is None else ids[best].tolist()
        return [
            Label(self.policy, self.layer, asked.keys[row], int(asked.outputs[row]), token)
            for row, token in zip(self.picked.tolist(), tokens, strict=True)
        ]


class _Group:
    """Candidates of one policy that may still be asked."""

    def __init__(self, policy: ExitPolicy, candidates: Candidates) -> None:
        self.policy = policy
        self.stops = stops(policy)
        self.rows = candidates.rows
        self.places = candidates.places
        self.keys = candidates.keys
        self.outputs = candidates.outputs
        self.sure = np.zeros(len(self.rows), dtype=np.bool_)  # at some exit point

    def drop(self, picked: Ids) -> None:
        """These of the group are done."""
        if len(picked) == len(self.rows):
            self.rows = NO_ROWS
            return
        rest = np.ones(len(self.rows), dtype=np.bool_)
        rest[picked] = False
        self.rows, self.places, self.outputs = self.rows[rest], self.places[rest], self.outputs[rest]
        self.keys = [key for key, stays in zip(self.keys, rest.tolist(), strict=True) if stays]
        self.sure = self.sure[rest]


class ExitPoints:
    """Who may still leave in one forward pass, and what was chosen so far."""

    def __init__(
        self,
        executor: LayerExecutor,
        policies: Mapping[str, ExitPolicy],
        candidates: Mapping[str, Candidates],
        batching: ExitBatching,
        statistics: Statistics,
    ) -> None:
        self.exits: list[Exit] = []  # where tokens come from
        self.staying: list[Exit] = []  # of those, which fly on
        self._executor = executor
        self._batching = batching
        self._statistics = statistics
        self._open = [_Group(policies[name], some) for name, some in candidates.items() if policies[name].layers]
        self._num_newly_sure = 0

    def next_stop(self, depth: int, last: int) -> int:
        """The next depth at which something is asked, or looked at one layer before; at most `last`."""
        nearest = last
        for group in self._open:
            index = bisect_right(group.stops, depth)
            if index < len(group.stops):
                nearest = min(nearest, group.stops[index])
        return nearest

    def ask(self, flight: Flight, before: Hidden) -> list[Exit]:
        """Ask about this depth, `before` being the flight's hidden states at the stop before; returns who leaves."""
        now = [group for group in self._open if flight.depth in group.policy.layers]
        if not now:
            return []
        self._num_newly_sure = 0
        chosen = [exit_ for group in now if (exit_ := self._choose(group, flight, before)) is not None]
        self.exits += chosen
        self.staying += chosen
        self._open = [group for group in self._open if len(group.rows)]
        if self._open and self._batching != "compact":
            self._statistics.num_involuntary_stays += self._num_newly_sure
            return []
        leaving, self.staying = self.staying, []
        return leaving

    def _choose(self, group: _Group, flight: Flight, before: Hidden) -> Exit | None:
        """Ask the group; those whose token comes from here are done with it."""
        policy, layer = group.policy, flight.depth
        asked = ExitRows(
            self._executor,
            policy.head(layer),
            layer=layer,
            hidden=flight.take(flight.hidden, group.rows),
            previous=flight.take(before, group.rows) if policy.wants_previous else None,
            keys=group.keys,
            outputs=group.outputs,
        )
        picked = self._decide(group, asked)
        exit_ = None
        if len(picked):
            asked.compute(picked)
            exit_ = Exit(policy, asked, picked, group.rows[picked], group.places[picked])
            if policy.wants_labels and policy.fill == "deferred":
                flight.labels.update(zip(exit_.rows.tolist(), exit_.labels(), strict=True))
            group.drop(picked)
        self._statistics.num_asked_per_layer[layer] += len(asked)
        self._statistics.num_head_rows_per_layer[layer] += asked.num_head_rows
        return exit_

    def _decide(self, group: _Group, asked: ExitRows) -> Ids:
        """Which of those asked get their token here."""
        sure = group.policy.decide(asked)
        assert sure.shape == (len(asked),), (sure.shape, len(asked))
        if self._batching == "literal":
            self._num_newly_sure += int(np.count_nonzero(sure & ~group.sure))
            group.sure |= sure
            return np.arange(len(asked), dtype=np.int32) if group.sure.all() else NO_ROWS
        picked = np.flatnonzero(sure).astype(np.int32)
        self._num_newly_sure += len(picked)
        return picked


def stops(policy: ExitPolicy) -> tuple[int, ...]:
    """Depths at which steps stop for the policy, rising."""
    before = [layer - 1 for layer in policy.layers if policy.wants_previous and layer > 1]
    return tuple(sorted({*policy.layers, *before}))
