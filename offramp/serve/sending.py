"""Server-sent events to a client, as they come, while it stays."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Send

from offramp.serve.gone import WatchClient
from offramp.serve.request_metrics import CLIENT_CLOSED

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}

Events = AsyncGenerator[tuple[int, bytes]]
"""Bytes to send, with the status that the log gives the request if they are the last."""


class SentEvents(Response):
    """A response without an end that is known beforehand. `status` is what the log gives the request, as of now."""

    def __init__(self) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self.status = CLIENT_CLOSED

    async def send_events(
        self, receive: Receive, send: Send, leave: Callable[[], object], events: Callable[[WatchClient], Events]
    ) -> None:
        """All of them, or as many as the client stays for; `leave` is called when it goes."""
        async with WatchClient(receive, leave) as watch:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(events(watch)) as coming:
                async for self.status, data in coming:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        if watch.gone:
            self.status = CLIENT_CLOSED
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
