"""offramp: language models with dynamic execution, each token with only the compute it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offramp.errors import (
    ContextLengthError,
    CorruptModelError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    NumericError,
    OfframpError,
    ResourceError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from offramp.core import RequestOptions, SamplingParams, StructuredOutputsParams
    from offramp.llm import LLM, CompletionOutput, DeltaStream, Report, RequestOutput, StreamDelta, ToolCall

__all__ = [  # noqa: RUF022 - plain order
    "CompletionOutput",
    "ContextLengthError",
    "CorruptModelError",
    "DeltaStream",
    "InvalidRequestError",
    "LLM",
    "ModelError",
    "ModelNotFoundError",
    "NumericError",
    "OfframpError",
    "Report",
    "RequestOptions",
    "RequestOutput",
    "ResourceError",
    "SamplingParams",
    "StreamDelta",
    "StructuredOutputsParams",
    "ToolCall",
    "UnsupportedModelError",
]


def __getattr__(name: str) -> object:
    """Load the engine when it is first asked for, so that `import offramp` stays quick."""
    if name == "__version__":
        from importlib.metadata import version

        return version("offramp")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("RequestOptions", "SamplingParams", "StructuredOutputsParams"):
        from offramp import core

        return getattr(core, name)
    from offramp import llm

    value: object = getattr(llm, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
