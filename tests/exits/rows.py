"""Rows for policies to decide about, on an executor that does nothing but turn hidden states into logits."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.exits.policy import ExitRows
from offramp.model.executor import FINAL, HeadId, LogitSummary
from offramp.testing.twin import summary_of

Floats = NDArray[np.float32]


class States:
    """Hidden states in host memory."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def take(self, indices: Ids) -> Self:
        return type(self)(self._values[indices])

    def concat(self, others: Sequence[Self]) -> Self:
        return type(self)(np.concatenate([self._values, *(other.numpy() for other in others)]))

    def numpy(self) -> Floats:
        return self._values


class Heads:
    """An executor of one head, the hidden state times `scale`; counts the rows it was asked for."""

    def __init__(self, vocab_size: int, scale: float = 1.0) -> None:
        self.config = SimpleNamespace(vocab_size=vocab_size)
        self.num_rows = 0
        self._scale = np.float32(scale)

    def head_ids(self, head: HeadId) -> Ids | None:
        return None

    def summarize(self, h: States, head: HeadId = FINAL) -> LogitSummary:
        self.num_rows += len(h)
        return summary_of(h.numpy() * self._scale)


def exit_rows(
    hidden: Floats,
    *,
    layer: int = 2,
    previous: Floats | None = None,
    outputs: Sequence[int] | None = None,
    keys: Sequence[SequenceKey] | None = None,
    heads: Heads | None = None,
) -> ExitRows:
    count = len(hidden)
    executor: Any = heads or Heads(hidden.shape[1])
    return ExitRows(
        executor,
        FINAL,
        layer=layer,
        hidden=States(hidden),
        previous=None if previous is None else States(previous),
        keys=keys or [(f"r{row}", 0) for row in range(count)],
        outputs=np.array(range(1, count + 1) if outputs is None else outputs, dtype=np.int32),
    )
