"""The policy that never exits.

What: every row runs every layer.
When it helps: always available; the policy of the modes `full` and `lossless`, and the baseline of all others.
Cost: none; without exit points nothing is ever asked.
Exactness: plain decoding.
Source: none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.model.executor import FINAL, HeadId, Hidden


class NeverExit:
    """No exit points, so nothing is ever asked and nothing is paid for asking."""

    @property
    def layers(self) -> tuple[int, ...]:
        return ()

    def head(self, layer: int) -> HeadId:
        return FINAL

    def decide(self, layer: int, hidden: Hidden, keys: Sequence[SequenceKey], positions: Ids) -> NDArray[np.bool_]:
        return np.zeros(len(keys), dtype=np.bool_)
