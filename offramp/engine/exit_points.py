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
    picked: list[int]  # which of those asked
    rows: Ids  # batch rows
    places: list[int]  # entries of logit_rows
    plain: list[bool]  # the token is that of the largest raw logit, and nobody asks for more

    @property
    def layer(self) -> int:
        return self.asked.layer

    @property
    def hidden(self) -> Hidden:
        """At the exit point."""
        hidden = self.asked.hidden
        return hidden if len(self.picked) == len(hidden) else hidden.take(np.array(self.picked, dtype=np.int32))

    def tokens(self) -> dict[int, int]:
        """By place the tokens that nobody needs to draw."""
        tokens: dict[int, int] = {}
        for place, row, plain in zip(self.places, self.picked, self.plain, strict=True):
            if plain and (token := self.asked.likeliest(row)) is not None:
                tokens[place] = token
        return tokens

    def labels(self) -> list[Label]:
        """What to tell the policy about these rows once full depth is known."""
        asked = self.asked
        return [
            Label(self.policy, self.layer, asked.keys[row], int(asked.outputs[row]), asked.likeliest(row))
            for row in self.picked
        ]


class _Group:
    """Candidates of one policy that may still be asked."""

    def __init__(self, policy: ExitPolicy, candidates: Candidates) -> None:
        self.policy = policy
        self.stops = stops(policy)
        self.rows = candidates.rows
        self.places = candidates.places.tolist()
        self.plain = candidates.plain
        self.keys = candidates.keys
        self.outputs = candidates.outputs
        self.sure = np.zeros(len(self.rows), dtype=np.bool_)  # at some exit point

    def drop(self, picked: list[int]) -> None:
        """These of the group are done."""
        if len(picked) == len(self.rows):
            self.rows = NO_ROWS
            return
        gone = set(picked)
        rest = [index for index in range(len(self.rows)) if index not in gone]
        self.rows, self.outputs, self.sure = self.rows[rest], self.outputs[rest], self.sure[rest]
        self.places, self.plain = [self.places[index] for index in rest], [self.plain[index] for index in rest]
        self.keys = [self.keys[index] for index in rest]


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
        if picked:
            asked.compute(picked)
            exit_ = _exit(group, asked, picked)
            if policy.wants_labels and policy.fill == "deferred":
                flight.labels.update(zip(exit_.rows.tolist(), exit_.labels(), strict=True))
            group.drop(picked)
        self._statistics.num_asked_per_layer[layer] += len(asked)
        self._statistics.num_head_rows_per_layer[layer] += asked.num_head_rows
        return exit_

    def _decide(self, group: _Group, asked: ExitRows) -> list[int]:
        """Which of those asked get their token here."""
        sure = group.policy.decide(asked)
        assert sure.shape == (len(asked),), (sure.shape, len(asked))
        if self._batching == "literal":
            self._num_newly_sure += int(np.count_nonzero(sure & ~group.sure))
            group.sure |= sure
            return list(range(len(asked))) if group.sure.all() else []
        picked = [row for row, leaves in enumerate(sure.tolist()) if leaves]
        self._num_newly_sure += len(picked)
        return picked


def _exit(group: _Group, asked: ExitRows, picked: list[int]) -> Exit:
    """Rows of the group, before they are dropped from it."""
    if len(picked) == len(group.rows):
        return Exit(group.policy, asked, picked, group.rows, group.places, group.plain)
    places, plain = [group.places[row] for row in picked], [group.plain[row] for row in picked]
    return Exit(group.policy, asked, picked, group.rows[picked], places, plain)


def stops(policy: ExitPolicy) -> tuple[int, ...]:
    """Depths at which steps stop for the policy, rising."""
    before = [layer - 1 for layer in policy.layers if policy.wants_previous and layer > 1]
    return tuple(sorted({*policy.layers, *before}))
