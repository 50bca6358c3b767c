"""One engine shared by several callers: events go to who asked for them, Ctrl-C waits for the step to end."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from offramp.core import Request, TokenEvent
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError, OfframpError, ResourceError


@dataclass(frozen=True, slots=True)
class Timed:
    """An event and when its step ended (`time.perf_counter`)."""

    event: TokenEvent
    seconds: float


class Driver:
    """Steps the engine for whoever waits. Safe to use from several threads: who holds the lock steps for all."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._inboxes: dict[str, deque[Timed]] = {}
        self._abandoned: deque[str] = deque()
        self._failure: BaseException | None = None

    def submit(self, request: Request) -> None:
        """Queue a request. One that can never be served raises and leaves nothing behind."""
        with self._engine_held() as engine:
            engine.add_request(request)
            self._inboxes[request.request_id] = deque()

    def receive(self, request_id: str) -> list[Timed]:
        """That request's next events, at least one, in order. Steps the engine until there are some."""
        while not (events := self._take(request_id)):
            with self._engine_held() as engine:
                if not self._inboxes.get(request_id, True):  # else another caller stepped meanwhile, or it was closed
                    self._deliver(engine.step())
        return events

    def close_all(self) -> None:
        """`close` every request."""
        for request_id in list(self._inboxes):
            self.close(request_id)

    def close(self, request_id: str) -> None:
        """Nobody waits for this request any more: abort it if it still runs, forget its events.

        Never blocks and may be called at any time, also by the garbage collector in the middle of a step.
        """
        self._abandoned.append(request_id)
        self._sweep()

    def _take(self, request_id: str) -> list[Timed]:
        """What lies ready for a request, without holding the engine: a step tells many readers at once."""
        inbox = self._inboxes.get(request_id)
        if inbox is None:
            raise InvalidRequestError(f"request {request_id} was closed", hint="send it again")
        return [inbox.popleft() for _ in range(len(inbox))]

    def _deliver(self, events: list[TokenEvent]) -> None:
        now = time.perf_counter()
        for event in events:
            inbox = self._inboxes.get(event.request_id)
            if inbox is not None:  # else the caller has gone
                inbox.append(Timed(event, now))

    @contextmanager
    def _engine_held(self) -> Iterator[Engine]:
        """The engine, for one caller and without interruption. An internal error ends its use: its state is unknown."""
        try:
            with self._lock, interrupts_held():
                if self._failure is not None:
                    raise _stopped(self._failure) from self._failure
                try:
                    yield self._engine
                except OfframpError:
                    raise
                except BaseException as failure:
                    self._failure = failure
                    raise
        finally:
            self._sweep()

    def _sweep(self) -> None:
        """Abort what was abandoned, unless someone holds the engine: they do it when they let go."""
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                with interrupts_held():
                    while self._abandoned:
                        request_id = self._abandoned.popleft()
                        self._inboxes.pop(request_id, None)
                        self._engine.abort(request_id)
            finally:
                self._lock.release()


def _stopped(failure: BaseException) -> ResourceError:
    return ResourceError(
        f"the engine stopped after an internal error ({type(failure).__name__}: {failure})", hint="make a new LLM"
    )


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C from breaking into the block: it is answered right after. Only the main thread receives it."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(*caught[-1])
