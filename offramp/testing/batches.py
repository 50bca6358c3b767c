"""Ragged batches by hand: chains, trees and their packing, for tests that talk to an executor without the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offramp.core import PAGE_SIZE, Ids, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of `Rows`, before packing."""

    token: int
    sequence: int
    position: int
    slot: int
    prefix_len: int
    ancestors: tuple[int, ...] = ()  # slots, depth order


def chain(tokens: Sequence[int], *, sequence: int = 0, start: int = 0) -> list[Row]:
    """Consecutive tokens of one sequence from position `start` on: a prefill chunk, or one decoding row."""
    spots = range(start, start + len(tokens))
    return [
        Row(token=token, sequence=sequence, position=p, slot=p, prefix_len=p)
        for token, p in zip(tokens, spots, strict=True)
    ]


def tree(tokens: Sequence[int], parents: Sequence[int], *, sequence: int = 0, start: int = 0) -> list[Row]:
    """Draft nodes above `start` committed tokens; node i takes slot start + i, parent -1 is the committed context."""
    rows: list[Row] = []
    for i, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        assert parent < i, "parents come first"
        ancestors = () if parent < 0 else (*rows[parent].ancestors, rows[parent].slot)
        position = start + len(ancestors)
        rows.append(
            Row(
                token=token,
                sequence=sequence,
                position=position,
                slot=start + i,
                prefix_len=start,
                ancestors=ancestors,
            )
        )
    return rows


def pack_rows(rows: Sequence[Row], pages: Sequence[Sequence[int]]) -> Rows:
    """The batch of these rows, in this order; `pages[s]` are the page ids of sequence s."""
    counts = [0, *(len(row.ancestors) for row in rows)]
    page_counts = [0, *(len(ids) for ids in pages)]
    return Rows(
        tokens=_ids([row.token for row in rows]),
        sequence=_ids([row.sequence for row in rows]),
        positions=_ids([row.position for row in rows]),
        slots=_ids([row.slot for row in rows]),
        prefix_lens=_ids([row.prefix_len for row in rows]),
        ancestor_slots=_ids([slot for row in rows for slot in row.ancestors]),
        ancestor_starts=_ids(np.cumsum(counts).tolist()),
        page_ids=_ids([page for ids in pages for page in ids]),
        page_starts=_ids(np.cumsum(page_counts).tolist()),
    )


def physical_slots(pages: Sequence[int], slots: Sequence[int]) -> Ids:
    """Slots of one sequence as `copy_slots` takes them: page id * 32 + offset."""
    return _ids([pages[slot // PAGE_SIZE] * PAGE_SIZE + slot % PAGE_SIZE for slot in slots])


def _ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int32)
