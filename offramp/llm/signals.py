"""Blocks that stay whole although Python's signal handlers run, and raise, between any two lines of the main thread.

Masking signals would not do: another thread would take the signal, and Python would run the handler here all the same.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

# The plain functions: those of `signal` make an enum of every answer, which costs more than all the rest here.
from _signal import getsignal, signal as set_handler  # type: ignore[import-not-found]  # isort: skip

CATCHABLE = tuple(sorted(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))

Handler = Callable[[int, FrameType | None], object]


class SignalsHeld:
    """`with SignalsHeld():` no signal handler runs within the block; those called for run right after it, once each.

    Blocks nest. Other threads than the main one run no handlers, so there nothing happens. Takes about 5 us.
    """

    def __init__(self) -> None:
        self._deputies: dict[int, _Deputy] = {}
        self._caught: dict[int, FrameType | None] = {}
        self._thread: int | None = None

    @property
    def active(self) -> bool:
        """Within the block. In the child of a fork the thread is another one, unless it forked within its own block."""
        return self._thread == threading.get_ident()

    def note(self, number: int, frame: FrameType | None) -> None:
        self._caught[number] = frame

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in CATCHABLE:
                handler = getsignal(number)
                if callable(handler):
                    self._deputies[number] = deputy = _Deputy(self, _own(handler))
                    set_handler(number, deputy)
            self._thread = threading.get_ident()
        except BaseException:  # a handler that was not held yet
            _put_back(list(self._deputies.items()))
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            _put_back(list(self._deputies.items()))
        finally:
            self._thread = None
            calls = [(self._deputies[number].handler, number, frame) for number, frame in self._caught.items()]
            self._deputies = {}  # they know us: no cycle is left for the garbage collector
            _answer(calls)


class _Deputy:
    """Stands in for a handler: notes the signal within the block, passes it on if it is left behind by accident."""

    def __init__(self, owner: SignalsHeld, handler: Handler) -> None:
        self.owner = owner
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.owner.active:
            self.owner.note(number, frame)
        else:
            self.handler(number, frame)


def _own(handler: Handler) -> Handler:
    """The program's handler behind deputies that were left behind."""
    while isinstance(handler, _Deputy) and not handler.owner.active:
        handler = handler.handler
    return handler


def _put_back(deputies: list[tuple[int, _Deputy]]) -> None:
    """Give the signals their handlers again; one that raises at once does not keep the others from it."""
    if deputies:
        number, deputy = deputies.pop()
        try:
            if getsignal(number) is deputy:  # else the block set a handler of its own
                set_handler(number, deputy.handler)
        finally:
            _put_back(deputies)


def _answer(calls: list[tuple[Handler, int, FrameType | None]]) -> None:
    """Run the handlers, also those behind one that raises."""
    if calls:
        (handler, number, frame), *rest = calls
        try:
            handler(number, frame)
        finally:
            _answer(rest)
