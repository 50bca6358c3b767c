"""An exit policy whose decisions a test writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.model.executor import FINAL, HeadId, Hidden

Choose = Callable[[SequenceKey, int, int], bool]
"""(sequence, position of the row, layers run) -> leaves here."""


class ScriptedExits:
    """Leaves where a function says; tokens come from the model's own head."""

    def __init__(self, layers: tuple[int, ...], choose: Choose) -> None:
        self._layers = layers
        self._choose = choose
        self.num_asked = 0

    @property
    def layers(self) -> tuple[int, ...]:
        return self._layers

    def head(self, layer: int) -> HeadId:
        return FINAL

    def decide(self, layer: int, hidden: Hidden, keys: Sequence[SequenceKey], positions: Ids) -> NDArray[np.bool_]:
        assert len(hidden) == len(keys) == len(positions)
        self.num_asked += len(keys)
        return np.array([self._choose(key, int(p), layer) for key, p in zip(keys, positions, strict=True)], dtype=bool)
