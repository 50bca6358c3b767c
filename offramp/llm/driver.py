"""One engine shared by several callers: events go to who asked for them, signals wait for the step to end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from offramp.core import Request, TokenEvent
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError, OfframpError, ResourceError
from offramp.fork import in_child
from offramp.llm.signals import SignalsHeld


@dataclass(frozen=True, slots=True)
class Timed:
    """An event and when its step ended (`time.perf_counter`)."""

    event: TokenEvent
    seconds: float


class Driver:
    """Steps the engine for whoever waits. Safe to use from several threads: who holds the lock steps for all.

    The child of a fork may go on with it, unless another thread held it at the fork.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._inboxes: dict[str, deque[Timed]] = {}
        self._abandoned: deque[str] = deque()
        self._failure: BaseException | None = None
        self._torn = False  # by a fork in the middle of a step
        in_child(self._renew)

    def submit(self, request: Request) -> None:
        """Queue a request. One that can never be served raises and leaves nothing behind."""
        with self._engine_held() as engine:
            engine.add_request(request)
            self._inboxes[request.request_id] = deque()

    def between_steps(self, act: Callable[[Engine], None]) -> None:
        """Do something with the engine while nobody steps it."""
        with self._engine_held() as engine:
            act(engine)

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

    def _renew(self) -> None:
        """In the child of a fork: whoever held the engine does not exist here and will never let go."""
        if self._lock.locked():
            self._torn = True
            self._lock = threading.Lock()
            with SignalsHeld():  # puts back the handlers that the parent had set aside
                pass

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
            with self._lock, SignalsHeld():
                self._check_usable()
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
        while self._abandoned:
            with SignalsHeld():
                if not self._lock.acquire(blocking=False):
                    return
                try:
                    self._abort_abandoned()
                finally:
                    self._lock.release()

    def _abort_abandoned(self) -> None:
        while self._abandoned:
            request_id = self._abandoned.popleft()
            self._inboxes.pop(request_id, None)
            if not self._torn and self._failure is None:
                self._engine.abort(request_id)

    def _check_usable(self) -> None:
        hint = "make a new LLM"
        if self._torn:
            raise ResourceError("the process was forked in the middle of a step", hint=f"{hint} in the child")
        if self._failure is not None:
            what = f"{type(self._failure).__name__}: {self._failure}"
            raise ResourceError(f"the engine stopped after an internal error ({what})", hint=hint) from self._failure
