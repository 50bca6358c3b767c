"""Token ids and slots as arrays."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

PAGE_SIZE = 32
"""Positions in a page: the unit of K/V memory, of the attention walk and of prefix hashing."""

Ids = NDArray[np.int32]


def num_shared_ids(one: Ids, other: Ids) -> int:
    """How many ids two texts begin with."""
    same = one[: len(other)] == other[: len(one)]
    return len(same) if same.all() else int(same.argmin())


class IdBuffer:
    """A growing list of int32 ids, readable as an array without a copy."""

    __slots__ = ("_data", "_length")

    def __init__(self, ids: Iterable[int] | Ids = ()) -> None:
        self._data = np.array(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int32)
        self._length = len(self._data)

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> Ids:
        """The ids so far, read-only for callers. A view taken before an append may miss later ids, never changes."""
        return self._data[: self._length]

    def append(self, value: int) -> None:
        self._reserve(1)
        self._data[self._length] = value
        self._length += 1

    def extend(self, values: abc.Sequence[int]) -> None:
        self._reserve(len(values))
        self._data[self._length : self._length + len(values)] = values
        self._length += len(values)

    def pop(self) -> int:
        assert self._length > 0
        self._length -= 1
        return int(self._data[self._length])

    def _reserve(self, count: int) -> None:
        if self._length + count > len(self._data):
            grown = np.empty(max(32, 2 * self._length, self._length + count), dtype=np.int32)
            grown[: self._length] = self._data[: self._length]
            self._data = grown
