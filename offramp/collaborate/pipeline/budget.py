"""How often a model that costs money may be called."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class CallBudget:
    """At most so many calls within any span of so many seconds; None: no bound. Not for several threads at once."""

    def __init__(self, most: int | None, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._calls: deque[float] = deque()

    def take(self) -> bool:
        """Whether one more call may be made; it counts from now on."""
        if self.left == 0:
            return False
        if self._most is not None:
            self._calls.append(self._clock())
        return True

    @property
    def left(self) -> int | None:
        """Calls that may still be made now; None: no bound."""
        if self._most is None:
            return None
        now = self._clock()
        while self._calls and self._calls[0] <= now - self._seconds:
            self._calls.popleft()
        return self._most - len(self._calls)

    @property
    def wait_seconds(self) -> float:
        """Until a call may be made."""
        if self.left != 0:
            return 0.0
        return self._calls[0] + self._seconds - self._clock() if self._calls else self._seconds
