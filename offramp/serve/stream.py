"""An answer as server-sent events: chunks as they come, then [DONE]."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offramp.errors import OfframpError
from offramp.serve.asked import Asked
from offramp.serve.errors import failure_of
from offramp.serve.gone import WatchClient
from offramp.serve.report import offramp_object, usage
from offramp.serve.request_metrics import CLIENT_CLOSED, RequestTrace
from offramp.serve.running import Added, Run
from offramp.serve.writing import Writer

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """One event; JSON has no bare line ends that could cut it."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'))}\n\n".encode()


class EventStream(Response):
    """Sends a run's chunks. `begin` first: until the first token an error still has a status of its own."""

    def __init__(self, run: Run, writer: Writer, asked: Asked, head: dict[str, object], trace: RequestTrace) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._run = run
        self._writer = writer
        self._asked = asked
        self._head = head
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
            yield 200, self._written(self._first)
            async for added in self._batches:
                yield 200, self._written(added)
        except OfframpError as error:
            if watch.gone:  # who has left gets no error, and its answer was not lost to one
                return
            failure = failure_of(error)
            self._trace.failed(failure)
            yield failure.status, event(failure.body) + DONE
        else:
            yield 200, DONE

    def _written(self, added: list[Added]) -> bytes:
        """The chunks of one batch; the last of the stream carry usage and `offramp`."""
        asked = self._asked
        null_usage = {"usage": None} if asked.include_usage else {}
        choices = [choice for prompt, delta in added for choice in self._writer.chunks(prompt, delta)]
        chunks = [{**self._head, "choices": [choice], **null_usage} for choice in choices]
        if self._run.finished:
            outputs, report = self._run.outputs(), self._run.report()
            if asked.include_usage:
                counts = usage(report, predicted=asked.predicted)
                chunks.append({**self._head, "choices": [], "usage": counts})
            told = offramp_object(outputs, report, asked.report)
            if told is not None:
                chunks[-1]["offramp"] = told
        return b"".join(map(event, chunks))
