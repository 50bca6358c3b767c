"""The seam of a drafter that needs the target's own layers: rows of a step run ahead of it, as far as drafts go.

The engine gives such a drafter this handle when it is made; it works while `propose` runs. Rows stop where the drafter
leaves them, and the step takes them up from there: no layer runs twice for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import SequenceKey
from offramp.model.executor import HeadId, Hidden


class EarlyLayers(Protocol):
    """First layers for the sequences of the step at work, each a chain of rows: its last token, then drafts."""

    def can_draft(self, key: SequenceKey) -> bool:
        """The sequence is behind by its last token alone."""
        ...

    def deepen(self, keys: Sequence[SequenceKey], layer: int) -> Hidden:
        """Run the newest row of each sequence through the first `layer` layers, [keys, hidden].

        Rows before it that wait above come along, so that it sees their K/V.
        """
        ...

    def extend(self, key: SequenceKey, token: int) -> bool:
        """A draft token after the newest row; False, changing nothing, when there is no room for its K/V."""
        ...

    def logits(self, hidden: Hidden, head: HeadId) -> NDArray[np.float32]:
        """[rows, vocab], -inf for tokens that the head does not know; valid until the next call."""
        ...
