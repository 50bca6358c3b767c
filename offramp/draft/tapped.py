"""The seam of a drafter that looks at the target's hidden states: what the steps' rows had at some depths.

The engine gives such a drafter this handle when it is made. Hidden states of a sequence come as its rows run; a place
that a cached prefix covers never runs, so it has none. Collecting them takes time at every step, so it ends for a
sequence that nobody has asked about for a while, and begins again from its next row on when somebody does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import SequenceKey


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Hidden states of the places first, first + 1, ... of one sequence, all of them committed."""

    first: int
    states: NDArray[np.float32]  # [places, taps, hidden]


class TappedStates(Protocol):
    """Hidden states by sequence, each handed out once."""

    def watch(self, key: SequenceKey) -> None:
        """The sequence's states may be asked for soon: go on collecting them, or begin."""
        ...

    def expect(self, wanted: bool) -> None:
        """Whether those of sequences that begin from now on are collected from their first row on."""
        ...

    def take(self, key: SequenceKey, stop: int) -> Seen | None:
        """What ran since the last `take`, without a hole up to the place before `stop`; None while that did not run.

        It may begin before what was taken already (K/V that were lost are run again), or behind a hole. The sequence
        is watched from now on.
        """
        ...
