"""One line on stderr for each finished request, readable or JSON. Never a prompt, an output or a key.

with log_to_stderr("json"):  # "text" otherwise
    serve()
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from offramp.params import check_choice

LogFormat = Literal["text", "json"]

REQUESTS = logging.getLogger("offramp.serve.requests")

DRAFTS = logging.getLogger("offramp.draft")
"""Tells when drafts don't pay."""


MODELS = logging.getLogger("offramp.serve.models")
"""Tells when one of several models is loaded or unloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What the log tells about a request. None: it never came that far."""

    id: str
    route: str
    status: int
    prompt_tokens: int | None
    output_tokens: int | None
    first_token_seconds: float | None
    seconds: float
    finish_reasons: tuple[str, ...]
    drafted: int | None
    accepted: int | None
    reason: str | None = None  # of a refusal or failure: the error's code, or its field
    mode: str | None = None  # that ran, where it is not the server's own
    mode_reason: str | None = None  # why it is not the one that was asked for
    model: str | None = None  # of a server with several


def log_request(request: FinishedRequest) -> None:
    """Tell the log of a request that ended."""
    REQUESTS.info("request finished", extra={"request": request})


@contextmanager
def log_to_stderr(log_format: LogFormat) -> Iterator[None]:
    """Send the package's and the server's log to stderr in this format, requests included, and nowhere else."""
    check_choice("log_format", log_format, get_args(LogFormat))
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logs = {logging.getLogger("offramp"): logging.WARNING, logging.getLogger("uvicorn"): logging.WARNING}
    telling = (REQUESTS, DRAFTS, MODELS)
    before = {log: (log.handlers[:], log.level, log.propagate) for log in [*logs, *telling]}
    for log, level in logs.items():
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
    for log in telling:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        for log, (handlers, level, propagate) in before.items():
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(level)


class JsonLines(logging.Formatter):
    """A JSON object a line: a request's fields, or a message's."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
        }
        request = _request_of(record)
        if request is not None:
            line |= {"event": "request", **asdict(request)}
        else:
            line |= {"event": "message", "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    """The time, then a request in a fixed order of words, or a message as the commands show it."""

    def format(self, record: logging.LogRecord) -> str:
        request = _request_of(record)
        if request is not None:
            return f"{_time_of(record)} {request_line(request)}"
        traceback = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_time_of(record)} {record.levelname.lower()}: {_printable(record.getMessage())}{traceback}"


def request_line(request: FinishedRequest) -> str:
    """One readable line about a request; what it never came to is left out."""
    parts = [f"{_printable(request.id)} {request.route} {request.status}"]
    if request.model is not None:
        parts.append(f"model {_printable(request.model)}")
    if request.reason is not None:
        parts.append(request.reason)
    if request.prompt_tokens is not None:
        parts.append(f"{request.prompt_tokens} prompt + {request.output_tokens} output tokens")
    if request.first_token_seconds is not None:
        parts.append(f"first after {request.first_token_seconds:.3f} s")
    parts.append(f"{request.seconds:.3f} s in all")
    if request.finish_reasons:
        parts.append("/".join(request.finish_reasons))
    if request.drafted:
        parts.append(f"{request.accepted} of {request.drafted} draft tokens accepted")
    if request.mode is not None:
        why = "" if request.mode_reason is None else f" ({request.mode_reason})"
        parts.append(f"mode {request.mode}{why}")
    return ", ".join(parts)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _request_of(record: logging.LogRecord) -> FinishedRequest | None:
    request = getattr(record, "request", None)
    return request if isinstance(request, FinishedRequest) else None


def _printable(text: str) -> str:
    """On one line whatever it holds: a client may have chosen it."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text)
