"""How fast requests have ended lately, and so when a refused one may come again."""

from __future__ import annotations

from collections import deque

WINDOW = 64
"""Ends that the rate is taken from, the latest."""

RECENT_SECONDS = 60.0
"""Older ends tell nothing."""

UNKNOWN_SECONDS = 5.0
"""To wait when nothing has ended lately."""

LEAST_SECONDS, MOST_SECONDS = 1.0, 60.0


class EndRate:
    """Requests that ended a second. Times are given, so that tests need no clock."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=WINDOW)

    def note(self, now: float) -> None:
        self._ends.append(now)

    def retry_after(self, num_queued: int, now: float) -> float:
        """Seconds until half of those who wait will have gone: early enough to keep busy, late enough to get in."""
        while self._ends and now - self._ends[0] > RECENT_SECONDS:
            self._ends.popleft()
        if not self._ends:
            return UNKNOWN_SECONDS
        seconds_each = (now - self._ends[0]) / len(self._ends)
        return min(MOST_SECONDS, max(LEAST_SECONDS, seconds_each * num_queued / 2))
