"""One submitted request, as its reader sees it: events as they come, and a way to give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Self

from offramp.core import FinishReason, Request, TokenEvent
from offramp.errors import OfframpError
from offramp.llm.driver import Timed

Expiry = Literal["queue", "total"]


class Mailbox:
    """Events that wait for one reader in one event loop.

    It holds at most what the request may generate, so a reader that never comes costs at most `max_tokens` events a
    choice, and the engine never waits for one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, request: Request) -> None:
        self.loop = loop
        self._request_id = request.request_id
        self._events: list[Timed] = []
        self._arrived = asyncio.Event()
        self._open_choices = set(range(request.params.n))  # whose end has not been delivered

    @property
    def complete(self) -> bool:
        """Everything was delivered, read or not."""
        return not self._open_choices

    def deliver(self, events: list[Timed]) -> None:
        """In the loop only."""
        self._events += events
        for timed in events:
            if timed.event.finish_reason is not None:
                self._open_choices.remove(timed.event.choice)
        self._arrived.set()

    def fail(self, error: OfframpError, seconds: float) -> None:
        """End with this error whatever has not ended; in the loop only."""
        self.deliver([Timed(event, seconds) for event in end_events(self._request_id, self._open_choices, error=error)])

    async def collect(self) -> list[Timed]:
        """What came since the last call, at least one event; nothing after the end."""
        while not self._events and not self.complete:
            self._arrived.clear()
            await self._arrived.wait()
        events, self._events = self._events, []
        return events


def end_events(request_id: str, choices: Iterable[int], *, error: OfframpError | None = None) -> list[TokenEvent]:
    """The ends of choices that the engine does not have (any more): by an error, or aborted."""
    reason: FinishReason = "abort" if error is None else "error"
    return [
        TokenEvent(request_id=request_id, choice=choice, finish_reason=reason, error=error)
        for choice in sorted(choices)
    ]


@dataclass(slots=True, eq=False)
class Submission:
    """A request on its way through the server. The engine's thread alone changes it, but for the mailbox's inside.

    It does not know its ticket: a ticket that nobody holds any more is how an abandoned request is found.
    """

    request: Request
    mailbox: Mailbox
    client: str
    whole: bool  # the answer is sent when it is complete, not as it comes
    submitted: float  # seconds of the worker's clock, as all times here
    queue_due: float
    total_due: float
    started: float | None = None  # when its first rows ran
    expired: Expiry | None = None
    open_choices: set[int] = field(init=False)  # for the engine's thread; the mailbox knows of an end later

    def __post_init__(self) -> None:
        self.open_choices = set(range(self.request.params.n))


class Ticket(AsyncIterator[list[Timed]]):
    """Events of one request, in order, at least one at a time; ends after the last choice has ended.

    To be read in the event loop that submitted. A request whose ticket is dropped before the end is cancelled.
    """

    def __init__(self, submission: Submission, cancel: Callable[[Submission], None]) -> None:
        self._submission = submission
        self._cancel = cancel

    @property
    def request(self) -> Request:
        return self._submission.request

    @property
    def expired(self) -> Expiry | None:
        """Which time limit ended it, if one did."""
        return self._submission.expired

    @property
    def submitted(self) -> float:
        """When it was submitted (`time.perf_counter`)."""
        return self._submission.submitted

    @property
    def started(self) -> float | None:
        """When its first rows ran; None while it waits, and when it ended before."""
        return self._submission.started

    def cancel(self) -> None:
        """End the request: its pages come back between this step and the next, its events end with "abort".

        Never blocks and may be called at any time, from any thread, repeatedly and after the end.
        """
        if not self._submission.mailbox.complete:
            self._cancel(self._submission)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Timed]:
        events = await self._submission.mailbox.collect()
        if not events:
            raise StopAsyncIteration
        return events

    def __del__(self) -> None:
        self.cancel()
