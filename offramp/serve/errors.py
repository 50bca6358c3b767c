"""What goes wrong as clients see it: a status and OpenAI's error object, always in the same shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import JSONResponse

from offramp.errors import (
    ContextLengthError,
    EngineFailedError,
    InvalidRequestError,
    ModelError,
    NumericError,
    OfframpError,
    QueueFullError,
    ResourceError,
    ServerStoppingError,
)
from offramp.option_names import with_flags
from offramp.serve.fields import field_of

INVALID, RATE, SERVER = "invalid_request_error", "rate_limit_error", "server_error"

KINDS: tuple[tuple[type[OfframpError], int, str, str | None], ...] = (
    (ContextLengthError, 400, INVALID, "context_length_exceeded"),
    (InvalidRequestError, 400, INVALID, None),
    (QueueFullError, 429, RATE, "queue_full"),
    (ResourceError, 400, INVALID, "insufficient_resources"),  # more than this server could ever hold
    (ModelError, 400, INVALID, "chat_template_failed"),
    (ServerStoppingError, 503, SERVER, "server_stopping"),
    (EngineFailedError, 500, SERVER, "engine_failed"),
    (NumericError, 500, SERVER, "numeric_error"),
)
"""Class, status, type, code: the first that fits."""


START_OPTIONS = {
    "max_context": "--max-model-len",
    "kv_memory": "--kv-memory",
    "exits": "--exits",
    "exit_threshold": "--exit-threshold",
}
"""Of the server's start, which hints name, and no field of a request's body holds: there they are flags."""


class HttpError(InvalidRequestError):
    """A refusal with a status of its own. Clients that retry by status are told not to, unless it is 429."""

    def __init__(self, status: int, message: str, *, hint: str, param: str | None = None, code: str) -> None:
        super().__init__(message, hint=hint, param=param)
        self.status = status
        self.code = code


class UnavailableError(OfframpError):
    """The model that a request names is not in memory, and can't be now (HTTP 503); later it may be."""

    def __init__(self, message: str, *, hint: str, code: str, retry_after_seconds: float) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Failure:
    """An error ready to be sent."""

    status: int
    error: Mapping[str, str | None]  # message, type, param, code
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, object]:
        return {"error": dict(self.error)}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, dict(self.headers))


def failure_of(error: OfframpError) -> Failure:
    """How a deliberate error is told."""
    if isinstance(error, HttpError):
        kind: tuple[int, str, str | None] = error.status, INVALID, error.code
    elif isinstance(error, UnavailableError):
        kind = 503, SERVER, error.code
    else:
        kind = next((rest for cls, *rest in KINDS if isinstance(error, cls)), (500, SERVER, None))  # type: ignore[assignment]
    status, type_, code = kind
    param = error.param if isinstance(error, InvalidRequestError) else None
    message = f"{error.message}: {with_flags(error.hint, START_OPTIONS)}"
    return Failure(status, {"message": message, "type": type_, "param": param, "code": code}, _headers(error, status))


def reason_of(failure: Failure) -> str:
    """A short reason for the log: the error's code, or its field's name. Never a text of a client's."""
    code, param = failure.error["code"], failure.error["param"]
    if code is not None:
        return code
    return "invalid_request" if param is None else field_of(param) or "unknown_field"


def internal_failure() -> Failure:
    """A bug of ours: the client learns no more than that."""
    message = "internal error: the server's log says more"
    return Failure(500, {"message": message, "type": SERVER, "param": None, "code": "internal_error"})


def expired(seconds: float) -> HttpError:
    """The request's time is up before its answer was whole."""
    hint = "ask for fewer tokens, or raise --request-timeout"
    return HttpError(408, f"the request took longer than {seconds:g} seconds", hint=hint, code="request_timeout")


def renamed(error: InvalidRequestError, names: Mapping[str, str]) -> InvalidRequestError:
    """The same error under the name that the client knows the field by."""
    if error.param is not None:
        error.param = names.get(error.param, error.param)
    return error


def _headers(error: OfframpError, status: int) -> dict[str, str]:
    """When to come again. The official client would retry 408, 409, 429 and 5xx by itself."""
    if isinstance(error, QueueFullError | UnavailableError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_seconds)))}
    if status == 401:
        return {"www-authenticate": "Bearer"}
    return {"x-should-retry": "false"} if status in (408, 500) else {}
