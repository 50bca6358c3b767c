"""A sign of life on the terminal while a long prompt is read."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

PATIENCE = 1.0  # seconds


class ReadingNotice:
    """Says "reading 4,482 tokens..." when nothing else is shown within `patience` seconds; `clear` erases it.

    Only on a terminal. Leaving the `with` block clears as well.
    """

    def __init__(self, num_tokens: int, *, patience: float = PATIENCE) -> None:
        self._text = f"reading {num_tokens:,} token{'' if num_tokens == 1 else 's'}..."
        self._lock = threading.Lock()
        self._shown = False
        self._cleared = sys.stderr is None or not sys.stderr.isatty()
        self._timer = threading.Timer(patience, self._show)
        self._timer.daemon = True

    def clear(self) -> None:
        """Show nothing from now on, and erase what is shown."""
        with self._lock:
            if self._shown and not self._cleared:
                _write(f"\r{' ' * len(self._text)}\r")
            self._cleared = True
        self._timer.cancel()

    def _show(self) -> None:
        with self._lock:
            if not self._cleared:
                _write(self._text)
                self._shown = True

    def __enter__(self) -> Self:
        if not self._cleared:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()


def _write(text: str) -> None:
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)
