"""An answer as server-sent events, sent as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offramp.errors import OfframpError
from offramp.serve.answering import Answering
from offramp.serve.errors import failure_of
from offramp.serve.gone import WatchClient
from offramp.serve.request_metrics import CLIENT_CLOSED, RequestTrace
from offramp.serve.running import Added, Running

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


class EventStream(Response):
    """Sends a run's events. `begin` first: until the first token an error still has a status of its own."""

    def __init__(self, run: Running, answering: Answering, trace: RequestTrace) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._run = run
        self._answering = answering
        self._trace = trace
        self._batches = run.batches()
        self._first: list[Added] = []

    async def begin(self, request: Request) -> None:
        """Wait for the first tokens. Raises OfframpError, and ClientDisconnect when the client goes before them."""
        async with WatchClient(request.receive, self._run.close) as watch:
            try:
                self._first = await anext(self._batches)
            except OfframpError:
                if not watch.gone:
                    raise
        if watch.gone:
            raise ClientDisconnect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = CLIENT_CLOSED
        try:
            async with WatchClient(receive, self._run.close) as watch:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async with aclosing(self._events(watch)) as events:
                    async for status, data in events:  # noqa: B007 - the last one's counts
                        await send({"type": "http.response.body", "body": data, "more_body": True})
            if watch.gone:
                status = CLIENT_CLOSED
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._run.close()
            await self._batches.aclose()
            self._trace.finished(status, self._run.report(), started=self._run.started)

    async def _events(self, watch: WatchClient) -> AsyncGenerator[tuple[int, bytes]]:
        """Bytes to send, with the status that the log gives the request if they are the last."""
        try:
            yield 200, self._answering.events(self._first, self._run)
            async for added in self._batches:
                yield 200, self._answering.events(added, self._run)
        except OfframpError as error:
            if watch.gone:  # who has left gets no error, and its answer was not lost to one
                return
            failure = failure_of(error)
            self._trace.failed(failure)
            yield failure.status, self._answering.failure(failure)
