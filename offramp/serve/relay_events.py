"""Somebody else's event stream, cut between its events, so that nobody gets half of one; and where it ends."""

from __future__ import annotations

import re

BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
"""What ends an event: a line end behind another, of whatever kind."""
LONGEST_EVENT = 64 << 20
"""Bytes."""
LAST = re.compile(
    rb"(?:^|[\r\n])(?:data: ?(?:\[DONE\]|\{\s*\"type\": ?\"response\.(?:completed|incomplete|failed)\")"
    rb"|event: ?response\.(?:completed|incomplete|failed)[\r\n])"
)
"""In the last event of a stream: [DONE], or the whole response of OpenAI's later API."""
ERROR = re.compile(
    rb"(?:^|[\r\n])(?:data: ?\{\s*\"(?:error\": ?\{|type\": ?\"(?:error|response\.failed)\")"
    rb"|event: ?(?:error|response\.failed)[\r\n])"
)
"""An error in the endpoint's own words."""


class WholeEvents:
    """Takes a stream in as it comes, and gives it back event by event."""

    def __init__(self) -> None:
        self._rest = bytearray()  # the beginning of an event
        self.ended = False  # its last event has come
        self.failed = False  # it told of an error

    @property
    def too_long(self) -> bool:
        """An event that does not end."""
        return len(self._rest) > LONGEST_EVENT

    def take(self, part: bytes) -> bytes:
        """All events that are whole by now; none: nothing."""
        known = max(0, len(self._rest) - 2)  # a blank line may have begun there
        self._rest += part
        ends = (place + len(each) for each in BLANK_LINES if (place := self._rest.rfind(each, known)) >= 0)
        return self._given(max(ends, default=0))

    def end(self) -> bytes:
        """What is left where nothing more comes: a last event whose blank line was left out, or nothing."""
        if LAST.search(self._rest) is None:
            return b""
        self._rest += b"\n\n"
        return self._given(len(self._rest))

    def _given(self, length: int) -> bytes:
        events = bytes(self._rest[:length])
        del self._rest[:length]
        self.ended = self.ended or LAST.search(events) is not None
        self.failed = self.failed or ERROR.search(events) is not None
        return events
