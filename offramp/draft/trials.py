"""When to draft although it is not predicted to pay: seldom, ever more so, and for a small share of the time."""

from __future__ import annotations

from math import ceil

PATIENCE, LONGEST_PATIENCE = 64, 1024
"""Steps without a draft before one is tried all the same; twice as many after each trial that changed nothing."""
MOST_SHARE = 0.02
"""Of the time of plain steps, that trials take in the long run."""
WARM_UP = 24
"""Steps before a trial in which what it looks at is collected."""


class Trials:
    """Counts steps."""

    def __init__(self) -> None:
        self._idle = 0
        self._patience = self._wait = PATIENCE

    @property
    def soon(self) -> bool:
        """One is due within `WARM_UP` steps."""
        return self._wait - self._idle <= WARM_UP

    def due(self) -> bool:
        """Another step goes without a draft, or this one is tried."""
        self._idle += 1
        if self._idle < self._wait:
            return False
        self._idle, self._patience = 0, min(LONGEST_PATIENCE, 2 * self._patience)
        self._wait = self._patience
        return True

    def took(self, plain_steps: float) -> None:
        """The latest trial took as long as so many plain steps: a dear one is long not repeated."""
        self._wait = max(self._wait, ceil(plain_steps / MOST_SHARE))

    def drafted(self) -> None:
        """Drafts pay."""
        self._idle, self._patience, self._wait = 0, PATIENCE, PATIENCE
