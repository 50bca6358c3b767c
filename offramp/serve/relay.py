"""Somebody else's event stream, passed on as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from offramp.errors import OfframpError
from offramp.serve.answering import DONE, event
from offramp.serve.errors import UnavailableError, failure_of
from offramp.serve.gone import WatchClient
from offramp.serve.relay_events import WholeEvents
from offramp.serve.remote import Remote
from offramp.serve.remote_answer import broken_off, reason_of_failure, unreadable
from offramp.serve.request_metrics import RequestTrace
from offramp.serve.sending import Events, SentEvents
from offramp.serve.time_left import TimeLeft

END = b""
EVENT_STREAM = "text/event-stream"
MOST_PARTS = 32
"""That wait for a client who reads slowly; then the endpoint waits too."""


class RelayStream(SentEvents):
    """Sends the events of an endpoint's stream. `begin` first: until then an error has a status of its own."""

    def __init__(
        self,
        remote: Remote,
        path: str,
        body: Mapping[str, object],
        trace: RequestTrace,
        time_left: TimeLeft,
        *,
        broken: Callable[[], object] = lambda: None,
    ) -> None:
        """`broken` is called where the endpoint fails after the answer began; before, `begin` raises."""
        super().__init__()
        self._remote = remote
        self._path = path
        self._body = body
        self._trace = trace
        self._time_left = time_left
        self._broken = broken
        self._coming = WholeEvents()
        self._parts: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = asyncio.Semaphore(MOST_PARTS)  # for parts; END always has some
        self._first = END

    async def begin(self, request: Request) -> None:
        """Wait for the first event. Raises what the endpoint's failure becomes, HttpError and ClientDisconnect."""
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(self._read_all)
        try:
            async with WatchClient(request.receive, self._reading.cancel) as watch:
                self._first = await self._next()
        except BaseException:
            self._reading.cancel()
            raise
        if watch.gone:
            raise ClientDisconnect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.send_events(receive, send, self._reading.cancel, self._events)
        finally:
            self._reading.cancel()
            self._trace.finished(self.status)

    async def _events(self, watch: WatchClient) -> Events:
        status = 200
        try:
            part = self._first
            while part:
                if self._coming.failed and status == 200:  # in its own words, which are passed on
                    status = 503
                    self._broken()
                yield status, part
                part = await self._next()
        except OfframpError as error:
            if watch.gone:  # the reading ends with the client: nobody lost an answer to the endpoint
                return
            failure = failure_of(error)
            self._trace.failed(failure)
            if isinstance(error, UnavailableError) and status == 200:
                self._broken()
            yield failure.status, event(failure.body) + DONE

    async def _next(self) -> bytes:
        """What comes next, END at the end. Raises what ended it otherwise, unless nobody waits any more."""
        async with self._time_left.bound():
            part = await self._parts.get()
        self._room.release()
        if part == END and not self._reading.cancelled():
            self._reading.result()
        return part

    async def _read(self) -> None:
        async with self._remote.opened(self._path, self._body) as response:
            kind = response.headers.get("content-type", EVENT_STREAM)
            if not kind.lower().startswith(EVENT_STREAM):
                raise unreadable("it is no event stream")
            try:
                async for part in response.aiter_bytes():
                    await self._put(self._coming.take(part))
                    if self._coming.ended:  # whether the connection ends too is the endpoint's affair
                        return
                    if self._coming.too_long:
                        raise broken_off("an event has no end")
            except httpx2.RequestError as error:
                raise broken_off(reason_of_failure(error)) from error
            await self._put(self._coming.end())
        if not self._coming.ended:
            raise broken_off("the connection was closed before its end")

    async def _put(self, events: bytes) -> None:
        if events:
            await self._room.acquire()
            self._parts.put_nowait(events)

    def _read_all(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled():
            reading.exception()  # told to whoever waits for the end, if anybody does
        self._parts.put_nowait(END)
