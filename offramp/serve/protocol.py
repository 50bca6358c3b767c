"""HTTP/1.1 as uvicorn speaks it, but clients must send and read in time, and every error has one shape."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from offramp.serve.errors import Failure, HttpError, failure_of

HEADER_SECONDS = 30.0
"""From a connection, or the first byte of a further request on it, to the end of the request's headers."""

READ_SECONDS = 60.0
"""That a client may read nothing of an answer that waits for it."""


class HttpProtocol(H11Protocol):
    """One connection."""

    _overdue: asyncio.TimerHandle | None = None  # runs while headers are awaited
    _stalled: asyncio.TimerHandle | None = None  # runs while the client must read before more is sent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever the system does not take is watched, also while closing
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_headers()
        self._forget_reader()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What was sent is no HTTP."""
        hint = "send HTTP/1.1, with less than 16 KiB of headers"
        self._refuse(failure_of(HttpError(400, "the request is not valid HTTP", hint=hint, code="invalid_http")))

    def _watch_headers(self) -> None:
        """Start the clock when a request is awaited, once; stop it when its headers are there."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget_headers()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _forget_headers(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        """Too late. A client that has sent nothing at all waits for no answer."""
        self._overdue = None
        received, _ = self.conn.trailing_data
        if not received:
            self.transport.close()
            return
        message = f"the headers were not there after {HEADER_SECONDS:g} seconds"
        self._refuse(failure_of(HttpError(408, message, hint="send them at once", code="header_timeout")))

    def _watch_reader(self) -> None:
        """Look again later; called when the system's buffers are full."""
        unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(READ_SECONDS, self._judge_reader, unread)

    def _judge_reader(self, unread_before: int) -> None:
        """A client that has read nothing meanwhile is as good as gone; a slow one goes on."""
        if self.transport.get_write_buffer_size() < unread_before:
            self._watch_reader()
        else:
            self.transport.abort()

    def _forget_reader(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _refuse(self, failure: Failure) -> None:
        """Answer, unless the application has begun to, and close; what it still works at is given up."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(failure.body).encode()
            headers = {**failure.headers, "content-type": "application/json", "content-length": str(len(body))}
            response = h11.Response(
                status_code=failure.status,
                headers=[*headers.items(), ("connection", "close")],
                reason=HTTPStatus(failure.status).phrase,
            )
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
