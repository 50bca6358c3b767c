"""What event loops have the engine's thread do between two steps, and wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from offramp.errors import ServerStoppingError

T = TypeVar("T")


class Errands:
    """Open ones; `close` fails those that nobody will do any more."""

    def __init__(self) -> None:
        self._open: set[Future[Any]] = set()
        self._closed = False
        self._closing = threading.Lock()

    async def send(self, act: Callable[[], T], inbox: SimpleQueue[Callable[[Any], object]]) -> T:
        """Leave it in the inbox and wait for what comes of it; given up, it is not begun any more."""
        done: Future[T] = Future()
        self._open.add(done)
        done.add_done_callback(self._open.discard)
        inbox.put(lambda dispatcher: _do(act, done))
        if self._closed:  # perhaps nobody looks into the inbox any more
            self.close()
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """The thread has ended. May be called from any thread, and again."""
        self._closed = True
        with self._closing:
            for each in list(self._open):
                if not each.done() and each.set_running_or_notify_cancel():
                    each.set_exception(ServerStoppingError("the server is stopping", hint="send the request later"))


def _do(act: Callable[[], T], done: Future[T]) -> None:
    if done.done() or not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(act())
    except BaseException as error:  # it is its sender's, and the engine goes on
        done.set_exception(error)
