"""The seam of drafters whose guesses take time: they say what to expect before they are asked."""

from __future__ import annotations

from typing import Protocol

from offramp.core import DraftAsk, Drafter, SequenceKey


class PaidDrafter(Drafter, Protocol):
    """A drafter with weights."""

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        """Expected tokens a second of the step, if it drafts for so many like this one; 0 where it had better not.

        Infinite where nobody asks what it costs.
        """
        ...

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        """So many of the tokens that its latest proposal is about to be judged by others drafted for nothing."""
        ...
