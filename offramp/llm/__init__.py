"""The offline front door: `LLM` and what it returns."""

from offramp.llm.llm import LLM
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.output import CompletionOutput, Report, RequestOutput, StreamDelta
from offramp.llm.stream import DeltaStream
from offramp.llm.tool_reader import ToolCall

__all__ = [
    "LLM",
    "CompletionOutput",
    "DeltaStream",
    "LoadedModel",
    "Report",
    "RequestOutput",
    "StreamDelta",
    "ToolCall",
    "load_model",
]
