"""How much work a training run has done: in steps, or in minutes of computing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class ComputeClock:
    """Seconds of computing: processor time of the process divided by its threads.

    On an idle machine that is the time on the wall; a process that is stopped or has to share loses nothing.
    """

    threads: int
    before: float = 0.0  # seconds of earlier runs of the same training
    _start: float = field(default_factory=lambda: time.process_time())

    @property
    def seconds(self) -> float:
        return self.before + (time.process_time() - self._start) / self.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When training ends: at so many steps, or after so many minutes of computing, whichever comes first."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        assert self.steps is not None or self.minutes is not None, "training needs an end"

    def progress(self, step: int, seconds: float) -> float:
        """0 at the beginning, 1 or more at the end."""
        shares = []
        if self.steps is not None:
            shares.append(step / self.steps)
        if self.minutes is not None:
            shares.append(seconds / (60 * self.minutes))
        return max(shares)
