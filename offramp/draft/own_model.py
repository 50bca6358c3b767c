"""A small model beside the target: it reads texts with K/V of its own, and says what it thinks comes next.

What: the part that drafting with it and letting it write have in common. What a sequence's text begins with stays, so
accepted tokens are not run again, and rejected ones are cut off.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids
from offramp.draft.own_cache import OwnCache, OwnSequence, next_rows
from offramp.model.executor import Hidden, LayerExecutor

CATCH_UP_ROWS = 256
"""Tokens of texts that run in one call at most."""


class OwnModel:
    """An executor with all its pages. `vocab_size` is that of the target, of which both models know `num_shared`.

    All who use the executor share one of these, or they would write into each other's pages. One text fits in any case.
    """

    def __init__(self, executor: LayerExecutor, *, max_context: int, vocab_size: int, num_shared: int) -> None:
        config = executor.config
        self.max_context = min(max_context, config.max_context, executor.num_pages * PAGE_SIZE)
        self.cache = OwnCache(executor.num_pages, config.num_layers)
        self._executor = executor
        self._vocab_size = vocab_size
        self._num_shared = min(num_shared, vocab_size, config.vocab_size)

    def knows(self, token_ids: Ids) -> bool:
        """All tokens of the text; padding ids of the target mean nothing to another model."""
        return bool(token_ids.max() < self._num_shared)

    def run(self, owners: Items[OwnSequence], parts: Items[Ids]) -> Hidden:
        """The next tokens of each sequence, whose pages are held, through all layers; states of the last ones."""
        rows = next_rows(owners, parts)
        hidden = self._executor.run_layers(self._executor.embed(rows), rows, 0, self._executor.config.num_layers)
        for own, part in zip(owners, parts, strict=True):
            own.ran(part)
        last = np.cumsum([len(part) for part in parts], dtype=np.int32) - 1
        return hidden.take(last.astype(np.int32))

    def logits(self, hidden: Hidden) -> NDArray[np.float32]:
        """[rows, vocab of the target]: -inf for ids that only one of the models has."""
        logits = np.full((len(hidden), self._vocab_size), -np.inf, dtype=np.float32)
        logits[:, : self._num_shared] = self._executor.logits(hidden)[:, : self._num_shared]
        return logits
