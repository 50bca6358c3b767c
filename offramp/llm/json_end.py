"""Where a JSON object or list that comes in pieces ends."""

from __future__ import annotations

import re

_NEXT = re.compile(r'["\\{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class JsonEnd:
    """Follows brackets and strings, each character once. Whether it is JSON at all is another matter."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The length of the part of `text` up to the end, which goes on what came before; None while it is open."""
        place = 0
        while place < len(text):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            match = (_IN_STRING if self._in_string else _NEXT).search(text, place)
            if match is None:
                return None
            place = match.end()
            if self._take(match[0]):
                return place
        return None

    def _take(self, character: str) -> bool:
        """One that counts; True if it closes the outermost bracket."""
        if character == '"':
            self._in_string = not self._in_string
        elif character == "\\":
            self._escaped = self._in_string
        elif character in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth <= 0
        return False
