"""A model that follows a text with K/V of its own: what comes next, whatever text is asked about."""

from __future__ import annotations

import numpy as np

from offramp.cache.sequence import pages_for
from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.errors import ContextLengthError
from offramp.model.executor import LayerExecutor
from offramp.sample.processors import Row

CHUNK = 256
"""Rows of one executor call."""


class Follower:
    """Has all pages of an executor that nobody else uses. What two texts begin with is run once."""

    def __init__(self, executor: LayerExecutor, max_context: int) -> None:
        self._executor = executor
        self._most = min(max_context, PAGE_SIZE * executor.num_pages)
        self._held: Ids = np.zeros(0, np.int32)  # tokens that have K/V

    def logits(self, tokens: Ids) -> Row:
        """[vocab] behind these tokens, at least one. Raises ContextLengthError."""
        if len(tokens) > self._most:
            hint = "ask for fewer tokens, or load the model with more K/V memory"
            raise ContextLengthError(f"{len(tokens)} tokens, the context is {self._most}", hint=hint)
        start = min(_shared(self._held, tokens), len(tokens) - 1)
        self._held = self._held[:start]
        pages = np.arange(pages_for(len(tokens)), dtype=np.int32)
        while start < len(tokens):
            stop = min(start + CHUNK, len(tokens))
            positions = np.arange(start, stop, dtype=np.int32)
            rows = Rows.plain(
                tokens[start:stop], np.zeros(stop - start, np.int32), positions, [pages[: pages_for(stop)]]
            )
            h = self._executor.run_layers(self._executor.embed(rows), rows, 0, self._executor.config.num_layers)
            start = stop
        self._held = tokens.copy()
        last = np.array([len(h) - 1], dtype=np.int32)
        row: Row = self._executor.logits(h.take(last))[0]
        return row


def _shared(one: Ids, other: Ids) -> int:
    """How many tokens two texts begin with."""
    same = one[: len(other)] == other[: len(one)]
    return len(same) if same.all() else int(same.argmin())
