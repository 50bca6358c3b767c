"""Every error offramp raises on purpose.

OfframpError
├── InvalidRequestError      the caller's values can't be honoured (HTTP 400, CLI exit 2)
│   └── ContextLengthError   the prompt does not fit the context
├── ModelError               a model can't be used
│   ├── ModelNotFoundError   no such file, package or name
│   ├── CorruptModelError    truncated, lying or damaged file
│   └── UnsupportedModelError  architecture, tokenizer or tensor type we don't know
├── ResourceError            not enough memory, pages or disk
│   └── QueueFullError       too many requests wait already (HTTP 429)
├── ServerStoppingError      the server finishes what it has and takes nothing new (HTTP 503)
├── EngineFailedError        an internal error ended the engine (HTTP 500)
└── NumericError             the model produced NaN or infinity for a request
"""

from __future__ import annotations

__all__ = [
    "ContextLengthError",
    "CorruptModelError",
    "EngineFailedError",
    "InvalidRequestError",
    "ModelError",
    "ModelNotFoundError",
    "NumericError",
    "OfframpError",
    "QueueFullError",
    "ResourceError",
    "ServerStoppingError",
    "UnsupportedModelError",
]


class OfframpError(Exception):
    """Base of all deliberate errors: `message` names the offending value, `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.add_note(f"hint: {hint}")  # a traceback shows it; str() stays the message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[OfframpError], message: str, hint: str) -> OfframpError:
    return kind(message, hint=hint)


class InvalidRequestError(OfframpError):
    """A request asks for something that can't be honoured; `param` names the offending field."""

    def __init__(self, message: str, *, hint: str, param: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class ContextLengthError(InvalidRequestError):
    """The prompt is as long as the model's context, or longer."""


class ModelError(OfframpError):
    """A model can't be used."""


class ModelNotFoundError(ModelError):
    """No such file, package or short name."""


class CorruptModelError(ModelError):
    """The file is truncated or contradicts itself."""


class UnsupportedModelError(ModelError):
    """An architecture, tokenizer or tensor type that offramp does not implement."""


class ResourceError(OfframpError):
    """Memory, pages or disk space ran out."""


class QueueFullError(ResourceError):
    """As many requests wait as may; `retry_after_seconds` is when a place is likely."""

    def __init__(self, message: str, *, hint: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class ServerStoppingError(OfframpError):
    """The server is shutting down and takes no new requests."""


class EngineFailedError(OfframpError):
    """The engine met an internal error: nothing more can be served without a restart."""


class NumericError(OfframpError):
    """The model produced NaN or infinity for a request."""
