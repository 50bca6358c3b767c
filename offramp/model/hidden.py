"""Hidden states kept in host memory: what every CPU executor hands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids


@dataclass(frozen=True, slots=True, eq=False)
class ArrayHidden:
    """Hidden states of some rows as one read-only array; implements `Hidden`."""

    values: NDArray[np.float32]  # [rows, hidden]

    def __post_init__(self) -> None:
        assert self.values.ndim == 2, self.values.shape
        assert self.values.dtype == np.float32, self.values.dtype
        assert self.values.flags.c_contiguous
        self.values.flags.writeable = False

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def take(self, indices: Ids) -> ArrayHidden:
        return ArrayHidden(np.ascontiguousarray(self.values[indices]))

    def concat(self, others: Sequence[ArrayHidden]) -> ArrayHidden:
        return ArrayHidden(np.concatenate([self.values, *(other.values for other in others)]))

    def numpy(self) -> NDArray[np.float32]:
        """The values themselves, read-only: copy before changing them."""
        return self.values
