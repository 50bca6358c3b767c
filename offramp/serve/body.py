"""A request's body as bytes: bounded in size and time, and declared as JSON."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from offramp.errors import InvalidRequestError
from offramp.serve.errors import HttpError

DISCARDED_BYTES = 64 << 20
"""Of a body that is too large, read and dropped so that the client gets to see why it is refused."""


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body. Raises InvalidRequestError, and ClientDisconnect when the client goes before its end."""
    _check_content_type(request.headers.get("content-type", ""))
    _check_encoding(request.headers.get("content-encoding", "identity"))
    if _declared(request) > max_bytes and "expect" in request.headers:
        raise _too_large(max_bytes)  # the client asks before it sends
    try:
        async with asyncio.timeout(seconds):
            return await _receive(request, max_bytes)
    except TimeoutError as error:
        hint = "send it at once, or a smaller one"
        message = f"the body was not there after {seconds:g} seconds"
        raise HttpError(408, message, hint=hint, code="body_timeout") from error


async def _receive(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        more = message.get("more_body", False)
        if size <= max_bytes:
            body += part
        elif size > max_bytes + DISCARDED_BYTES:
            break
    if size > max_bytes:
        raise _too_large(max_bytes)
    return bytes(body)


def _check_content_type(content_type: str) -> None:
    """Only JSON: what a web page of somebody else may send without asking is something else."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        shown = content_type[:80] or "none"
        hint = "send JSON with the header Content-Type: application/json"
        raise InvalidRequestError(f"the content type is {shown}", hint=hint)


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() != "identity":
        raise InvalidRequestError(f"the content encoding is {encoding[:80]}", hint="send plain JSON")


def _declared(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else 0


def _too_large(max_bytes: int) -> HttpError:
    hint = "send less, or raise --max-body"
    return HttpError(413, f"the body is larger than {max_bytes} bytes", hint=hint, code="body_too_large")
