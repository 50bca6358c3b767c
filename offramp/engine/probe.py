"""Rows that nobody asked for, to time an executor with: they write only the pages they are given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.model.executor import LayerExecutor


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Some pages hold a context of whole pages, which every row reads; the rows write slots of the others."""

    context_pages: Ids
    scratch_pages: Ids

    @staticmethod
    def over(pages: Ids, *, context: int, num_rows: int) -> Probe:
        """Room for that many rows behind that much context (rounded down to whole pages)."""
        num_context, num_scratch = context // PAGE_SIZE, pages_for_rows(num_rows)
        assert num_context + num_scratch <= len(pages), "too few pages"
        return Probe(pages[:num_context], pages[num_context : num_context + num_scratch])

    @property
    def context(self) -> int:
        return len(self.context_pages) * PAGE_SIZE

    def write_page(self, executor: LayerExecutor, page: int) -> None:
        """K/V for the positions of one context page at all layers, at the price of the projections alone."""
        positions = np.arange(page * PAGE_SIZE, (page + 1) * PAGE_SIZE, dtype=np.int32)
        rows = _rows(positions, positions, self.context_pages, num_seqs=1)
        executor.fill(executor.embed(rows), rows, 0, executor.config.num_layers)

    def rows(self, count: int, context: int) -> Rows:
        """One row a sequence, as in a step of decoding, each behind `context` tokens (whole pages)."""
        assert context % PAGE_SIZE == 0, context
        assert context <= self.context, context
        pages = np.concatenate([self.context_pages[: context // PAGE_SIZE], self.scratch_pages])
        slots = np.arange(context, context + count, dtype=np.int32)
        return _rows(np.full(count, context, np.int32), slots, pages, num_seqs=count)


def pages_for_rows(count: int) -> int:
    """Scratch pages that `count` rows write."""
    return -(-count // PAGE_SIZE)


def _rows(positions: Ids, slots: Ids, pages: Ids, *, num_seqs: int) -> Rows:
    """Rows without ancestors, of one sequence or of one each; all sequences have the same pages."""
    count = len(positions)
    return Rows(
        tokens=np.zeros(count, np.int32),
        sequence=np.zeros(count, np.int32) if num_seqs == 1 else np.arange(count, dtype=np.int32),
        positions=positions,
        slots=slots,
        prefix_lens=positions,
        ancestor_slots=np.empty(0, np.int32),
        ancestor_starts=np.zeros(count + 1, np.int32),
        page_ids=np.tile(pages, num_seqs),
        page_starts=np.arange(num_seqs + 1, dtype=np.int32) * np.int32(len(pages)),
    )
