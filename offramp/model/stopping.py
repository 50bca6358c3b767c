"""Stop strings in streamed text: nothing that could belong to one is shown before it is decided."""

from __future__ import annotations


class StopMatcher:
    """Finds the stop string that is complete first, however the text is cut into pieces.

    Of several that end at the same character, the longest wins, so the text is cut at the earliest start. The result
    depends on the text alone. Each character costs a constant per stop string (Knuth-Morris-Pratt).
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        assert all(stops), "empty stop strings are refused where requests are checked"
        self._stops = stops
        self._failures = [_failure(stop) for stop in stops]
        self._matched = [0] * len(stops)  # how much of each stop the text ends with
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def push(self, text: str, *, passing: bool = False) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string is complete; what follows it is dropped.

        While `passing`, stop strings that become complete are text like any other.
        """
        if not self._stops:
            return text, False
        assert not self._stopped, "no text is pushed after a stop"
        before = len(self._held)
        self._held += text
        for i, char in enumerate(text):
            cut = self._advance(char)
            if cut and not passing:
                self._stopped = True
                return self._release(before + i + 1 - cut), True
        return self._release(len(self._held) - max(self._matched, default=0)), False

    def flush(self) -> str:
        """The text held back for a stop string that did not come; empty after a stop."""
        return "" if self._stopped else self._release(len(self._held))

    def _advance(self, char: str) -> int:
        """Follow every stop by one character; the length of the longest one complete now, or 0."""
        longest = 0
        for n, (stop, failure) in enumerate(zip(self._stops, self._failures, strict=True)):
            matched = self._matched[n]
            while matched and stop[matched] != char:
                matched = failure[matched - 1]
            matched += stop[matched] == char
            if matched == len(stop):
                longest = max(longest, matched)
                matched = failure[matched - 1]  # the next one may overlap it
            self._matched[n] = matched
        return longest

    def _release(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        return shown


def _failure(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    lengths = [0] * len(stop)
    matched = 0
    for i in range(1, len(stop)):
        while matched and stop[matched] != stop[i]:
            matched = lengths[matched - 1]
        matched += stop[matched] == stop[i]
        lengths[i] = matched
    return lengths
