"""An answer as server-sent events, sent as they come."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from offramp.errors import OfframpError
from offramp.serve.answering import Answering
from offramp.serve.errors import failure_of
from offramp.serve.gone import WatchClient
from offramp.serve.request_metrics import RequestTrace
from offramp.serve.running import Added, Running
from offramp.serve.sending import Events, SentEvents


class EventStream(SentEvents):
    """Sends a run's events. `begin` first: until the first token an error still has a status of its own."""

    def __init__(self, run: Running, answering: Answering, trace: RequestTrace) -> None:
        super().__init__()
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
        try:
            await self.send_events(receive, send, self._run.close, self._events)
        finally:
            self._run.close()
            await self._batches.aclose()
            self._trace.finished(self.status, self._run.report(), started=self._run.started)

    async def _events(self, watch: WatchClient) -> Events:
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
