"""Who has been let in: the state that readers' loops and the engine's thread share, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from offramp.errors import EngineFailedError, InvalidRequestError, OfframpError, QueueFullError, ServerStoppingError
from offramp.serve.rate import EndRate
from offramp.serve.ticket import Submission


class Ledger:
    """Lets requests in, or refuses them. At most `max_queued` wait besides those that the engine has room for."""

    def __init__(self, *, max_queued: int, max_num_seqs: int) -> None:
        self._max_queued = max_queued
        self._max_num_seqs = max_num_seqs
        self._lock = threading.Lock()
        self._open: dict[str, Submission] = {}
        self._num_waiting = 0  # requests let in that the engine does not have yet
        self._num_held = 0  # sequences that the engine has
        self._rate = EndRate()
        self._when_empty: list[Callable[[], object]] = []
        self._stopping = False
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    @property
    def num_waiting(self) -> int:
        return self._num_waiting

    @property
    def num_open(self) -> int:
        """Let in, and not ended."""
        return len(self._open)

    @property
    def empty(self) -> bool:
        return not self._open

    def check(self) -> None:
        """Raise unless requests are served at all."""
        if self._failure is not None:
            raise engine_failed(self._failure)
        if self._stopping:
            raise ServerStoppingError("the server is stopping", hint="send the request to another server, or later")

    def let_in(self, submission: Submission, pass_on: Callable[[Submission], None], now: float) -> None:
        """Count a request in and pass it on. Raises what `check` raises, and when the queue is full or the id is taken.

        `pass_on` runs under the lock: after `stop` has returned nothing more is passed on.
        """
        request_id = submission.request.request_id
        with self._lock:
            self.check()
            if request_id in self._open:
                hint = "finish or abort the first one, or choose another request_id"
                raise InvalidRequestError(f"request {request_id!r} is running already", hint=hint, param="request_id")
            num_queued = self._num_waiting - max(0, self._max_num_seqs - self._num_held)
            if num_queued >= self._max_queued:
                raise QueueFullError(
                    f"{max(0, num_queued)} requests wait already, the most that may",
                    hint="try again later, or raise the limit of waiting requests",
                    retry_after_seconds=self._rate.retry_after(num_queued, now),
                )
            self._open[request_id] = submission
            self._num_waiting += 1
            pass_on(submission)

    def note(self, *, num_left: int, num_held: int, ended: Iterable[Submission], now: float) -> None:
        """After a step: so many left the queue, so many sequences are held, these requests ended."""
        with self._lock:
            self._num_waiting -= num_left
            self._num_held = num_held
            for submission in ended:
                del self._open[submission.request.request_id]
                self._rate.note(now)

    def stop(self) -> None:
        """Let nobody in any more."""
        with self._lock:
            self._stopping = True

    def fail(self, failure: BaseException) -> list[Submission]:
        """Let nobody in any more, and give up all that are in."""
        with self._lock:
            self._failure = failure
            ended = list(self._open.values())
            self._open.clear()
            self._num_waiting = self._num_held = 0
            return ended

    def when_empty(self, call: Callable[[], object]) -> None:
        """Call once, as soon as `settle` finds nobody in: at once when that is so already."""
        with self._lock:
            self._when_empty.append(call)
        self.settle()

    def settle(self) -> None:
        """The ends noted so far have been delivered."""
        with self._lock:
            if self._open:
                return
            calls, self._when_empty = self._when_empty, []
        for call in calls:
            call()


def engine_failed(failure: BaseException) -> OfframpError:
    """What every request is told from then on."""
    what = f"the engine stopped after an internal error ({type(failure).__name__})"
    return EngineFailedError(what, hint="restart the server; its log says more")
