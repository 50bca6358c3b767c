"""An exit policy whose decisions a test writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.exits.policy import ExitRows, Fill
from offramp.model.executor import FINAL, HeadId

Choose = Callable[[SequenceKey, int, int], bool]
"""(sequence, index of the output token that the row yields, layers run) -> leaves here."""


class ScriptedExits:
    """Leaves where a function says, and writes down what it was asked and told.

    Tokens come from the model's own head unless `head` says otherwise.
    """

    def __init__(
        self,
        layers: tuple[int, ...],
        choose: Choose,
        *,
        fill: Fill = "deferred",
        head: HeadId = FINAL,
        wants_previous: bool = False,
        wants_labels: bool = False,
    ) -> None:
        self.layers = layers
        self.fill: Fill = fill
        self.wants_previous = wants_previous
        self.wants_labels = wants_labels
        self.num_asked = 0
        self.asked: list[ExitRows] = []
        self.labels: dict[tuple[SequenceKey, int], tuple[int, bool]] = {}  # (sequence, output) -> layer, agreed
        self.forgotten: list[SequenceKey] = []
        self._choose = choose
        self._head = head

    def head(self, layer: int) -> HeadId:
        assert layer in self.layers
        return self._head

    def decide(self, rows: ExitRows) -> NDArray[np.bool_]:
        assert len(rows) == len(rows.hidden) == len(rows.outputs) > 0
        assert (rows.previous is not None) == self.wants_previous
        assert len(set(rows.keys)) == len(rows), "a sequence is asked about twice at once"
        assert rows.layer in self.layers
        self.num_asked += len(rows)
        self.asked.append(rows)
        places = zip(rows.keys, rows.outputs.tolist(), strict=True)
        return np.array([self._choose(key, output, rows.layer) for key, output in places], dtype=np.bool_)

    def observe(self, layer: int, keys: Sequence[SequenceKey], outputs: Ids, agreed: NDArray[np.bool_]) -> None:
        assert self.wants_labels
        for key, output, same in zip(keys, outputs.tolist(), agreed.tolist(), strict=True):
            assert (key, output) not in self.labels, "told twice"
            self.labels[key, output] = layer, same

    def forget(self, key: SequenceKey) -> None:
        self.forgotten.append(key)
