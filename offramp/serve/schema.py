"""The types of what clients send, strict: "5" is no number, and 1 is no boolean.

Ranges are checked where values are used. Bodies come here without nulls, and without the fields that are refused or
have no effect (`fields.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from offramp.errors import InvalidRequestError
from offramp.params import refused

StringOrStrings = Annotated[
    object, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
]
PromptValue = Annotated[
    object,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "integer"}},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            ]
        }
    ),
]
_TOOL_CALL = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
            "required": ["name", "arguments"],
        },
    },
    "required": ["id", "type", "function"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                        "required": ["type", "text"],
                    },
                },
            ]
        },
        "name": {"type": "string"},
        "tool_calls": {"type": "array", "items": _TOOL_CALL},
        "tool_call_id": {"type": "string"},
    },
    "required": ["role"],
}
_TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[a-zA-Z0-9_.:-]{1,128}$"},
                "description": {"type": "string"},
                "parameters": {"type": "object"},
                "strict": {"type": "boolean"},
            },
            "required": ["name"],
        },
    },
    "required": ["type", "function"],
}
_ITEM = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "type": {"const": "message"},
                "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
                "content": {
                    "anyOf": [
                        {"type": "string"},
                        {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "type": {"type": "string", "enum": ["input_text", "output_text"]},
                                    "text": {"type": "string"},
                                },
                                "required": ["type", "text"],
                            },
                        },
                    ]
                },
            },
            "required": ["role", "content"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "function_call"},
                "call_id": {"type": "string"},
                "name": {"type": "string"},
                "arguments": {"type": "string"},
            },
            "required": ["type", "call_id", "name", "arguments"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "function_call_output"},
                "call_id": {"type": "string"},
                "output": {"type": "string"},
            },
            "required": ["type", "call_id", "output"],
        },
    ]
}
_FUNCTION: dict[str, Any] = _TOOL["properties"]["function"]  # type: ignore[index]
_RESPONSE_TOOL = {
    "type": "object",
    "properties": {"type": {"const": "function"}, **_FUNCTION["properties"]},
    "required": ["type", "name"],
}
Tools = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _TOOL, "maxItems": 128})]
ToolChoiceValue = Annotated[
    object, WithJsonSchema({"anyOf": [{"type": "string", "enum": ["none", "auto", "required"]}, {"type": "object"}]})
]
Messages = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _MESSAGE, "minItems": 1})]
Choice = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
Ids = Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}})]


class Body(BaseModel):
    """Strict, and closed: a field that is not declared is refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", frozen=True)


class OfframpBody(Body):
    """The request's say in dynamic execution, as `offramp.core.RequestOptions`."""

    mode: str | None = None
    risk: float | None = None
    exits: str | None = None
    draft: str | None = None
    max_draft: int | None = None
    references: Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "string"}})] = []
    verifier: str | None = None
    report: str = "summary"


class StreamOptionsBody(Body):
    """What comes besides the stream's text."""

    include_usage: bool = False


class StructuredOutputsBody(Body):
    """What the answer must be, as `offramp.core.StructuredOutputsParams`."""

    json_: Annotated[object, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})] = Field(
        None, alias="json"
    )
    regex: str | None = None
    choice: Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "string"}})] | None = None
    grammar: str | None = None
    json_object: bool = False
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False


class GeneratingBody(Body):
    """Fields that every route has whose answers are generated."""

    model: str | None = None
    stream: bool = False
    stream_options: Choice | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: StringOrStrings | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[
        dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}})
    ] = {}
    cache_salt: str = ""
    offramp: Choice = {}


class SamplingBody(GeneratingBody):
    """Fields that chat and completions share."""

    n: int | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    best_of: int | None = None
    prompt_logprobs: int | None = None
    response_format: Choice | None = None
    structured_outputs: Choice | None = None


class ChatBody(SamplingBody):
    """POST /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    chat_template_kwargs: Choice = {}
    prediction: Choice | None = None
    tools: Tools | None = None
    tool_choice: ToolChoiceValue | None = None
    parallel_tool_calls: bool | None = None


class CompletionBody(SamplingBody):
    """POST /v1/completions."""

    prompt: PromptValue
    echo: bool = False
    logprobs: int | None = None


class ResponseBody(GeneratingBody):
    """POST /v1/responses."""

    input: Annotated[
        object, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _ITEM, "minItems": 1}]})
    ]
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    include: Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "string"}})] = []
    text: Choice = {}
    tools: Annotated[list[Any], WithJsonSchema({"type": "array", "items": _RESPONSE_TOOL, "maxItems": 128})] = []
    tool_choice: ToolChoiceValue | None = None
    parallel_tool_calls: bool | None = None
    metadata: Choice = {}
    chat_template_kwargs: Choice = {}


class TokenizeBody(Body):
    """POST /tokenize: a prompt, or the messages of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    chat_template_kwargs: Choice = {}
    return_token_strs: bool = False


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: Ids


WANTED: Mapping[str, str] = {
    "float": "a number",
    "int": "an integer",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "dict": "an object",
}
"""By the first word of a pydantic error's type."""

B = TypeVar("B", bound=Body)


def read(kind: type[B], values: Mapping[str, object], where: str = "") -> B:
    """The values as a body of that kind. Raises InvalidRequestError naming the first field of a wrong type."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        param = _path((*((where,) if where else ()), *first["loc"]))
        if first["type"] == "missing":
            raise InvalidRequestError(f"{param} is missing", hint=f"give {param}", param=param) from None
        wanted = WANTED.get(first["type"].partition("_")[0], first["msg"])
        raise refused(param, first["input"], wanted) from None


def _path(places: tuple[int | str, ...]) -> str:
    """("messages", 0, "role") -> messages[0].role"""
    head, *rest = places
    return str(head) + "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in rest)
