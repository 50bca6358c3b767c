"""A ragged batch of rows: what one executor call works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from offramp.core.ids import PAGE_SIZE, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A ragged batch: one row is one token of one sequence. All arrays int32 and C-contiguous.

    Row r belongs to sequence `sequence[r]`, whose pages are `page_ids[page_starts[s]:page_starts[s + 1]]`. Slot n of a
    sequence is offset n % 32 of its page n // 32. The row writes slot `slots[r]`; it sees logical positions
    0..positions[r]: those below `prefix_lens[r]` in the slot of the same number, those from there to positions[r] - 1
    in `ancestor_slots[ancestor_starts[r]:ancestor_starts[r + 1]]` in depth order, and itself. A plain (chain) row has
    slot == position == prefix_len and no ancestors.
    """

    tokens: Ids  # [rows]
    sequence: Ids  # [rows], index into page_starts
    positions: Ids  # [rows], logical position (rope, attention order)
    slots: Ids  # [rows]
    prefix_lens: Ids  # [rows]
    ancestor_slots: Ids  # [total ancestors]
    ancestor_starts: Ids  # [rows + 1]
    page_ids: Ids  # [total pages]
    page_starts: Ids  # [seqs + 1]

    @staticmethod
    def plain(tokens: Ids, sequence: Ids, positions: Ids, page_lists: Sequence[Ids]) -> Rows:
        """Chain rows alone: each in the slot of its position; one list of pages a sequence."""
        starts = np.array([0, *accumulate(map(len, page_lists))], dtype=np.int32)
        return Rows(
            tokens=tokens,
            sequence=sequence,
            positions=positions,
            slots=positions,
            prefix_lens=positions,
            ancestor_slots=np.zeros(0, dtype=np.int32),
            ancestor_starts=np.zeros(len(tokens) + 1, dtype=np.int32),
            page_ids=np.concatenate(page_lists),
            page_starts=starts,
        )

    @staticmethod
    def chain(tokens: Ids, start: int, stop: int, pages: Ids) -> Rows:
        """Tokens start..stop-1 of one sequence behind those before them; `pages` are its pages, or more."""
        positions = np.arange(start, stop, dtype=np.int32)
        own = pages[: -(-stop // PAGE_SIZE)]
        return Rows.plain(tokens[start:stop], np.zeros(stop - start, dtype=np.int32), positions, [own])

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, indices: Ids) -> Rows:
        """The chosen rows in that order; pages are shared, not copied."""
        ancestors, starts = self._ancestors_of(indices)
        return Rows(
            tokens=self.tokens[indices],
            sequence=self.sequence[indices],
            positions=self.positions[indices],
            slots=self.slots[indices],
            prefix_lens=self.prefix_lens[indices],
            ancestor_slots=ancestors,
            ancestor_starts=starts,
            page_ids=self.page_ids,
            page_starts=self.page_starts,
        )

    def _ancestors_of(self, indices: Ids) -> tuple[Ids, Ids]:
        """Slots and starts of the chosen rows."""
        starts = np.zeros(len(indices) + 1, dtype=np.int32)
        if len(self.ancestor_slots) == 0 or len(indices) == 0:
            return self.ancestor_slots[:0], starts
        np.cumsum(np.diff(self.ancestor_starts)[indices], out=starts[1:])
        picked = [self.ancestor_slots[self.ancestor_starts[i] : self.ancestor_starts[i + 1]] for i in indices]
        return np.concatenate(picked), starts
