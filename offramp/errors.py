"""Every error offramp raises on purpose.

OfframpError
├── InvalidRequestError      the caller's values can't be honoured (HTTP 400, CLI exit 2)
│   └── ContextLengthError   the prompt does not fit the context
├── ModelError               a model can't be used
│   ├── ModelNotFoundError   no such file, package or name
│   ├── CorruptModelError    truncated, lying or damaged file
│   └── UnsupportedModelError  architecture, tokenizer or tensor type we don't know
├── ResourceError            not enough memory, pages or disk
└── NumericError             the model produced NaN or infinity for a request
"""

from __future__ import annotations

__all__ = [
    "ContextLengthError",
    "CorruptModelError",
    "InvalidRequestError",
    "ModelError",
    "ModelNotFoundError",
    "NumericError",
    "OfframpError",
    "ResourceError",
    "UnsupportedModelError",
]


class OfframpError(Exception):
    """Base of all deliberate errors: `message` names the offending value, `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

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


class NumericError(OfframpError):
    """The model produced NaN or infinity for a request."""
