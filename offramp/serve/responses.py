"""/v1/responses: OpenAI's later API, without its memory: each request brings the whole conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offramp.errors import InvalidRequestError
from offramp.llm.field_lists import read_object
from offramp.llm.tool_choice import ToolChoice, mode_of, name_in, named
from offramp.llm.tool_use import ToolUse, checked_use
from offramp.llm.tools import Tool, check_type, distinct_tools, function_of
from offramp.params import refused
from offramp.serve.asked import Asked
from offramp.serve.chat import asked_of
from offramp.serve.fields import (
    RESPONSE,
    RESPONSE_ALLOWED,
    RESPONSE_CHOICE,
    RESPONSE_FORMATS,
    RESPONSE_STREAM_OPTIONS,
    RESPONSE_TEXT,
    RESPONSE_TOOL,
)
from offramp.serve.response_input import input_messages
from offramp.serve.schema import ChatBody, GeneratingBody, ResponseBody, read
from offramp.serve.served import Served

LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")  # the latter is empty here: nothing is kept to reason on
SAME = {*GeneratingBody.model_fields, "chat_template_kwargs", "top_logprobs"} - {"model", "stream_options"}
"""Fields that mean what they mean in chat, and are left to it."""
RENAMED = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "structured_outputs": "text.format",
}
"""Beginnings of the names of chat's fields, and what they are here; the first that fits."""


def ask_response(values: Mapping[str, object], served: Served) -> Asked:
    """The body as a request. Raises InvalidRequestError naming the field that can't be honoured."""
    body = read(ResponseBody, RESPONSE.keep_honoured(values))
    model = served.name_of(body.model)
    if body.stream_options is not None:
        RESPONSE_STREAM_OPTIONS.keep_honoured(body.stream_options, "stream_options")
    use = checked_use(_tools(body), _choice(body.tool_choice, bool(body.tools)), body.parallel_tool_calls)
    messages = input_messages(body.input, body.instructions)
    text_format = _text_format(body.text)
    chat = _as_chat(body, text_format, use)
    try:
        asked = asked_of(chat, messages, use, model, served)
    except InvalidRequestError as error:
        error.param = _renamed(error.param)
        raise
    return replace(asked, repeated=_repeated(body, asked, use, text_format))


def _as_chat(body: ResponseBody, text_format: Mapping[str, object], use: ToolUse) -> ChatBody:
    """The fields besides input and tools, as chat has them."""
    given = {name: getattr(body, name) for name in SAME if name in body.model_fields_set}
    given |= {"messages": [], "logprobs": _logprobs(body, use)}
    if body.max_output_tokens is not None:
        given["max_completion_tokens"] = body.max_output_tokens
    if text_format["type"] == "json_schema":
        named_schema = {name: value for name, value in text_format.items() if name != "type"}
        given["response_format"] = {"type": "json_schema", "json_schema": named_schema}
    else:
        given["response_format"] = dict(text_format)
    return read(ChatBody, given)


def _logprobs(body: ResponseBody, use: ToolUse) -> bool:
    for index, name in enumerate(body.include):
        if name not in INCLUDED:
            raise refused(f"include[{index}]", name, f"one of {', '.join(INCLUDED)}")
    wanted = LOGPROBS in body.include or bool(body.top_logprobs)
    if wanted and use.callable:
        hint = "leave tools or the log-probabilities out, or use /v1/chat/completions"
        message = "log-probabilities have no place beside tools"
        param = "include" if LOGPROBS in body.include else "top_logprobs"
        raise InvalidRequestError(message, hint=hint, param=param)
    return wanted or body.top_logprobs is not None


def _text_format(text: Mapping[str, object]) -> Mapping[str, object]:
    """`text.format`, whose schema lies right in it."""
    kept = RESPONSE_TEXT.keep_honoured(text, "text")
    if "format" not in kept:
        return {"type": "text"}
    return read_object(kept["format"], "text.format", RESPONSE_FORMATS)


def _tools(body: ResponseBody) -> tuple[Tool, ...]:
    """In the shape of responses: the function's fields lie beside the type."""
    tools = []
    for index, each in enumerate(body.tools):
        where = f"tools[{index}]"
        kept = read_object(each, where, RESPONSE_TOOL)
        check_type(kept, where)
        tools.append(function_of({name: value for name, value in kept.items() if name != "type"}, where))
    return distinct_tools(tools)


def _choice(value: object, any_tools: bool) -> ToolChoice:
    if value is None:
        return ToolChoice(mode="auto" if any_tools else "none")
    if isinstance(value, str):
        return mode_of(value, "tool_choice", any_tools)
    kept = read_object(value, "tool_choice", RESPONSE_CHOICE)
    if kept.get("type") == "allowed_tools":
        return _allowed(kept)
    check_type(kept, "tool_choice")
    return named({name: value for name, value in kept.items() if name != "type"}, "tool_choice")


def _allowed(kept: Mapping[str, object]) -> ToolChoice:
    listed = kept.get("tools")
    if not isinstance(listed, list) or not listed:
        raise refused("tool_choice.tools", listed, "a list of tools")
    names = []
    for index, each in enumerate(listed):
        place = f"tool_choice.tools[{index}]"
        inner = read_object(each, place, RESPONSE_ALLOWED)
        check_type(inner, place)
        names.append(name_in(inner, place))
    mode = mode_of(kept.get("mode"), "tool_choice.mode", True, ("auto", "required")).mode
    return ToolChoice(mode=mode, names=tuple(names), place="tool_choice.tools")


def _renamed(param: str | None) -> str | None:
    """A field of chat's under its name here; of a message only the whole input, since items are not messages."""
    if param is None or param.startswith("messages"):
        return None if param is None else RENAMED["messages"]
    begun = next((name for name in RENAMED if param == name or param.startswith(f"{name}.")), None)
    return param if begun is None else RENAMED[begun] + param.removeprefix(begun)


def _repeated(
    body: ResponseBody, asked: Asked, use: ToolUse, text_format: Mapping[str, object]
) -> Mapping[str, object]:
    """What OpenAI's responses say of their requests."""
    params = asked.params
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "parallel_tool_calls": use.parallel,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": params.temperature,
        "text": {"format": dict(text_format)},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": body.tools,
        "top_logprobs": params.logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
    }
