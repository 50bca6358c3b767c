"""HTTP/1.1 as uvicorn speaks it, but clients must send and read in time, and every error has one shape."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from offramp.serve.errors import Failure, HttpError, failure_of
from offramp.serve.head import MAX_HEAD_BYTES, head_too_large

HEADER_SECONDS = 30.0
"""From a connection, or the first byte of a further request on it, to the end of the request's headers."""

REST_SECONDS = 30.0
"""From an answer that did not wait for the request's body to the end of that body."""

LEAVE_SECONDS = 2.0
"""For a client that is refused to see why: were it cut off while it still sends, it would not get to read that."""

READ_BYTES = 16 << 10
"""Looked at in one go: a body in tiny chunks takes a while, and others shall have their turn meanwhile."""

READ_SECONDS = 60.0
"""That a client may read nothing of an answer that waits for it."""


class HttpProtocol(H11Protocol, asyncio.BufferedProtocol):
    """One connection."""

    _buffer: bytes | bytearray = b""  # what the system fills next
    _leaving: asyncio.TimerHandle | None = None  # runs once the client has been refused
    _resting: asyncio.TimerHandle | None = None  # runs while the rest of a body is read and dropped
    _overdue: asyncio.TimerHandle | None = None  # runs while headers are awaited
    _stalled: asyncio.TimerHandle | None = None  # runs while the client must read before more is sent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever the system does not take is watched, also while closing
        self._watch_headers()

    def get_buffer(self, sizehint: int) -> bytearray:
        buffer = self._buffer = bytearray(READ_BYTES)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        buffer, self._buffer = self._buffer, b""
        self.data_received(bytes(buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self._leaving is not None:
            return
        super().data_received(data)
        self._watch_headers()
        self._watch_rest()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_headers()
        self._forget_rest()
        self._forget_reader()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What was sent is no HTTP, or too much of it."""
        received, _ = self.conn.trailing_data
        in_body = self.cycle is not None and not self.cycle.response_complete
        if len(received) > MAX_HEAD_BYTES and not in_body:
            self._refuse(failure_of(head_too_large()))
            return
        hint = "send HTTP/1.1"
        self._refuse(failure_of(HttpError(400, "the request is not valid HTTP", hint=hint, code="invalid_http")))

    def _watch_headers(self) -> None:
        """Start the clock when a request is awaited, once; stop it when its headers are there."""
        if self.conn.their_state is not h11.IDLE or self._leaving is not None or self.transport.is_closing():
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

    def _watch_rest(self) -> None:
        """Start the clock when more of a body comes that nobody waits for, once; stop it at the body's end."""
        if self.conn.our_state is not h11.DONE or self.conn.their_state is not h11.SEND_BODY:
            self._forget_rest()
        elif self._resting is None:
            self._resting = self.loop.call_later(REST_SECONDS, self.transport.close)

    def _forget_rest(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

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
            self.cycle.waiting_for_100_continue = False
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
        if self._leaving is None and not self.transport.is_closing():
            self.transport.write_eof()
            self._leaving = self.loop.call_later(LEAVE_SECONDS, self.transport.close)
