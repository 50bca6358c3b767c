"""Rows of a step that run ahead of it, as far as drafts go: what a drafter that needs layers gets.

State lives from `open` to the step's batch: K/V that were written count only once the step's forward pass has taken
the rows through all layers, and hidden states of rows that the step leaves out are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows, SequenceKey
from offramp.engine.logit_rows import LogitRows
from offramp.engine.pack import Started
from offramp.engine.planner import PlanItem
from offramp.engine.task import Task
from offramp.errors import ResourceError
from offramp.model.executor import HeadId, Hidden, LayerExecutor


@dataclass(slots=True, eq=False)
class _Row:
    token: int
    position: int
    depth: int = 0
    hidden: Hidden | None = None  # none at the embedding


@dataclass(slots=True, eq=False)
class _Chain:
    """A sequence's last token and drafts behind it. Depth never grows along it, as fill never does."""

    task: Task
    rows: list[_Row] = field(default_factory=list)


class DraftRows:
    """Implements `EarlyLayers` over one engine's executor. `seconds` is what its calls took since `open`."""

    def __init__(self, executor: LayerExecutor) -> None:
        self.seconds = 0.0
        self._executor = executor
        self._items: Sequence[PlanItem] = ()  # of the step, until somebody asks
        self._chains: dict[SequenceKey, _Chain] = {}
        self._logits = LogitRows(executor.config.vocab_size)

    def open(self, items: Sequence[PlanItem]) -> None:
        """A step begins with these plan items, whose pages are held and copied."""
        self.seconds = 0.0
        self._items, self._chains = items, {}

    def keep(self, key: SequenceKey, num_nodes: int) -> None:
        """Only so many drafts of the sequence run on."""
        chain = self._chains.get(key)
        if chain is not None:
            del chain.rows[1 + num_nodes :]

    def started(self) -> Mapping[SequenceKey, Sequence[Started]]:
        """The rows that ran, the first of each sequence's."""
        return {
            key: [Started(row.depth, row.hidden) for row in chain.rows if row.hidden is not None]
            for key, chain in self._chains.items()
            if chain.rows[0].hidden is not None
        }

    def can_draft(self, key: SequenceKey) -> bool:
        for item in self._items:
            sequence = item.task.sequence
            if item.yields and item.stop - item.start == 1 and not sequence.request.drafts_off:
                row = _Row(int(sequence.tokens.view[item.start]), item.start)
                self._chains[sequence.key] = _Chain(item.task, [row])
        self._items = ()
        return key in self._chains

    def extend(self, key: SequenceKey, token: int) -> bool:
        chain = self._chains[key]
        position = chain.rows[-1].position + 1
        try:
            chain.task.cache.grow(position + 1)
        except ResourceError:
            return False
        chain.task.cache.assert_writable(position, position + 1)
        chain.rows.append(_Row(token, position))
        return True

    def deepen(self, keys: Sequence[SequenceKey], layer: int) -> Hidden:
        begin = time.perf_counter()
        chains = [self._chains[key] for key in keys]
        for chain in chains:
            fill = chain.task.cache.fill
            assert fill.paid == fill.filled == chain.rows[0].position, "drafts behind unpaid tokens"
        waiting = [(index, row) for index, chain in enumerate(chains) for row in chain.rows if row.depth < layer]
        pages = [chain.task.cache.pages.view for chain in chains]
        flying: list[tuple[int, _Row]] = []
        hidden: Hidden | None = None
        depths = sorted({row.depth for _, row in waiting})
        for depth, stop in zip(depths, [*depths[1:], layer], strict=True):
            joining = [each for each in waiting if each[1].depth == depth]
            came = self._came(joining, pages)
            hidden = came if hidden is None else hidden.concat([came])
            flying += joining
            hidden = self._executor.run_layers(hidden, _rows(flying, pages), depth, stop)
        if hidden is not None:
            for place, (_, row) in enumerate(flying):
                row.depth = layer
                row.hidden = hidden.take(np.array([place], dtype=np.int32))
        newest = [chain.rows[-1].hidden for chain in chains if chain.rows[-1].hidden is not None]
        assert len(newest) == len(chains)
        assert all(chain.rows[-1].depth == layer for chain in chains), "the newest row has gone deeper already"
        self.seconds += time.perf_counter() - begin
        return newest[0].concat(newest[1:])

    def logits(self, hidden: Hidden, head: HeadId) -> NDArray[np.float32]:
        begin = time.perf_counter()
        logits, ids = self._executor.logits(hidden, head), self._executor.head_ids(head)
        if ids is not None:
            self._logits.reserve(len(logits))
            for index, row in enumerate(logits):
                self._logits.put(index, row, ids)
            logits = self._logits.first(len(logits))
        self.seconds += time.perf_counter() - begin
        return logits

    def _came(self, joining: Sequence[tuple[int, _Row]], pages: Sequence[Ids]) -> Hidden:
        """Hidden states of rows that wait at one depth."""
        hidden = [row.hidden for _, row in joining if row.hidden is not None]
        if not hidden:
            return self._executor.embed(_rows(joining, pages))
        assert len(hidden) == len(joining)
        return hidden[0].concat(hidden[1:])


def _rows(placed: Sequence[tuple[int, _Row]], pages: Sequence[Ids]) -> Rows:
    return Rows.plain(
        np.array([row.token for _, row in placed], dtype=np.int32),
        np.array([index for index, _ in placed], dtype=np.int32),
        np.array([row.position for _, row in placed], dtype=np.int32),
        pages,
    )
