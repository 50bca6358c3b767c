"""What each row of a batch writes and reads, as physical slots: the paging contract of `Rows`, checked.

Physical slot = page id * 32 + offset. A violation is an AssertionError: the engine, not the user, packed these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, Rows

UNWRITTEN = -1
OUTSIDE = -1


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Physical slots of a batch: one written by each row, and those it sees by logical position."""

    writes: Ids  # [rows]
    reads: Ids  # [rows, longest view], OUTSIDE beyond a row's own position

    def check_written(self, positions: Ids, layer: int) -> None:
        """Assert that each slot in view was written, at this layer, for the logical position it is read at."""
        expected = np.broadcast_to(np.arange(self.reads.shape[1]), self.reads.shape)
        wrong = (self.reads != OUTSIDE) & (positions[self.reads] != expected)
        assert not wrong.any(), f"layer {layer}: row, position {np.argwhere(wrong)[0]} reads a slot not written for it"


def view_rows(rows: Rows, num_pages: int) -> View:
    """The physical slots of a batch; asserts that the rows honour the contract."""
    _check_shapes(rows, num_pages)
    longest = int(rows.positions.max(initial=-1)) + 1
    reads = np.full((len(rows), longest), OUTSIDE, np.int32)
    writes = np.zeros(len(rows), np.int32)
    for r in range(len(rows)):
        s, prefix, position = rows.sequence[r], rows.prefix_lens[r], rows.positions[r]
        pages = rows.page_ids[rows.page_starts[s] : rows.page_starts[s + 1]]
        ancestors = rows.ancestor_slots[rows.ancestor_starts[r] : rows.ancestor_starts[r + 1]]
        assert prefix + len(ancestors) == position, f"row {r}: {prefix} + {len(ancestors)} ancestors != {position}"
        seen = np.concatenate([np.arange(prefix), ancestors, rows.slots[r : r + 1]])
        assert ((seen >= 0) & (seen < len(pages) * PAGE_SIZE)).all(), f"row {r}: slots {seen} of {len(pages)} pages"
        reads[r, : position + 1] = pages[seen // PAGE_SIZE] * PAGE_SIZE + seen % PAGE_SIZE
        writes[r] = reads[r, position]
    assert len(np.unique(writes)) == len(writes), f"two rows write one slot: {sorted(writes)}"
    return View(writes, reads)


def check_range(start: int, stop: int, num_layers: int, num_with_sides: int) -> None:
    """Assert that a layer range lies in the model, or is one side layer."""
    side = num_layers <= start < num_with_sides and stop == start + 1
    assert side or 0 <= start <= stop <= num_layers, (start, stop, num_layers, num_with_sides)


def copy_slot_rows(arrays: Sequence[NDArray[Any]], source: Ids, target: Ids) -> None:
    """Copy entries `source` to `target` of each array, as if all reads came first."""
    assert len(source) == len(target)
    assert len(np.unique(target)) == len(target), "two copies into one slot"
    for array in arrays:
        array[target] = array[source]


def _check_shapes(rows: Rows, num_pages: int) -> None:
    count = len(rows)
    for name in ("tokens", "sequence", "positions", "slots", "prefix_lens"):
        values = getattr(rows, name)
        assert values.shape == (count,), name
        assert values.dtype == np.int32, name
    assert rows.ancestor_starts.shape == (count + 1,)
    assert ((rows.sequence >= 0) & (rows.sequence < len(rows.page_starts) - 1)).all(), rows.sequence
    assert ((rows.page_ids >= 0) & (rows.page_ids < num_pages)).all(), rows.page_ids
