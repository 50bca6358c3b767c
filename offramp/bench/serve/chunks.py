"""A stream of server-sent events, taken apart: bytes -> data -> what a chunk says. Bounded and pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_EVENT = 4 * 2**20
"""Bytes of a line of a stream."""

DONE = b"[DONE]"


class StreamError(Exception):
    """The stream says or shows that there is no answer; `name` is short, to be counted."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of an answer."""

    has_text: bool = False
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class EventLines:
    """Collects bytes as they come; gives the data of each event that is complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises StreamError for a line without end, and for one that tells of an error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_EVENT:
            raise StreamError("bad stream", f"a line is longer than {LONGEST_EVENT} bytes")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                yield value.strip()
            elif field == b"error":
                raise StreamError("error in stream", _shown(value))


def read_chunk(data: bytes) -> Chunk:
    """What the data of one event says. Raises StreamError when that is no chunk, or an error."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StreamError("bad stream", f"not JSON: {_shown(data)}") from error
    if not isinstance(event, dict):
        raise StreamError("bad stream", f"not an object: {_shown(data)}")
    if event.get("error"):
        raise StreamError("error in stream", error_message(event))
    choices = [choice for choice in _items(event.get("choices")) if isinstance(choice, dict)]
    reasons = [choice["finish_reason"] for choice in choices if isinstance(choice.get("finish_reason"), str)]
    usage = event.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Chunk(
        has_text=any(_text_of(choice) for choice in choices),
        finish_reason=reasons[0] if reasons else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
    )


def error_message(body: object) -> str:
    """The message of an OpenAI-shaped error, or what else the body says."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return _shown(str(message if message else body).encode())


def _text_of(choice: dict[str, object]) -> bool:
    """A choice brings some text, of the answer or of what the model thinks."""
    delta = choice.get("delta")
    parts = [choice.get("text")]
    if isinstance(delta, dict):
        parts += [delta.get("content"), delta.get("reasoning_content"), delta.get("reasoning")]
    return any(isinstance(part, str) and part for part in parts)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _shown(data: bytes) -> str:
    return " ".join(data[:300].decode("utf-8", "replace").split())
