"""What an endpoint says: bodies read as far as they may go, answers in OpenAI's shape, refusals, lists of models."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx2
from starlette.responses import JSONResponse

from offramp.errors import ResourceError
from offramp.serve.errors import UnavailableError

LARGEST_ANSWER = 64 << 20
"""Bytes."""
SHOWN_ERROR = 500
"""Characters of an endpoint's own message."""
COME_AGAIN = 5.0
"""Seconds, where the endpoint does not say."""
RESPONSES = "/responses"


async def read_whole(response: httpx2.Response) -> bytes:
    """The body, as far as it may go. Raises UnavailableError."""
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LARGEST_ANSWER:
                break
    except httpx2.RequestError as error:
        raise broken_off(reason_of_failure(error)) from error
    return bytes(body)


def answer_of(body: bytes, path: str) -> dict[str, object]:
    """The answer to what that path was asked. Raises UnavailableError for anything else, an error included."""
    answer = _object(body)
    if answer is None:
        raise unreadable("it is no JSON object")
    name = "output" if path == RESPONSES else "choices"
    parts = answer.get(name)
    if not isinstance(parts, list) or not (parts or path == RESPONSES):
        message = message_of(body)
        raise unreadable(f"it has no {name}" if message is None else f"it is an error: {message}")
    return answer


def passed_on(answer: Mapping[str, object]) -> JSONResponse:
    """An endpoint's answer for our client. Raises UnavailableError for one that holds what JSON does not have."""
    try:
        return JSONResponse(answer)
    except (ValueError, RecursionError) as error:  # NaN, half of a character, lists in lists without an end
        raise unreadable("it is no JSON that can be passed on") from error


def message_of(body: bytes) -> str | None:
    """What an endpoint says of a refusal, in OpenAI's shape."""
    error = (_object(body) or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    if not isinstance(message, str):
        return None
    return " ".join(message.split())[:SHOWN_ERROR].encode("utf-8", "replace").decode()


def names_of(body: bytes, url: str) -> set[str] | None:
    """The models that an endpoint lists; None where it lists none in OpenAI's way.

    Raises ResourceError for what no such endpoint says.
    """
    listing = _object(body)
    if listing is None:
        hint = "check url: it ends with /v1 on most servers"
        raise ResourceError(f"{url}/models answers no JSON object", hint=hint)
    entries = listing.get("data")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return {entry["id"] for entry in entries if isinstance(entry.get("id"), str)}


def broken_off(why: str) -> UnavailableError:
    """An answer that began, and has no end."""
    return _failed(f"the endpoint's answer broke off: {why}", "try again later")


def unreadable(why: str) -> UnavailableError:
    """An answer that says nothing to us."""
    return _failed(f"the endpoint's answer can't be used: {why}", "check that it speaks OpenAI's API")


def reason_of_failure(error: Exception) -> str:
    """A short text."""
    return str(error) or type(error).__name__


def _failed(message: str, hint: str) -> UnavailableError:
    return UnavailableError(message, hint=hint, code="endpoint_failed", retry_after_seconds=COME_AGAIN)


def _object(body: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
