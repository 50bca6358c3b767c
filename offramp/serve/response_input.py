"""`input` of a response, a text or items, as messages for the model's template. Errors name the item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.errors import InvalidRequestError
from offramp.llm.field_lists import read_object
from offramp.llm.prompts import ROLES, TOOL_ROLE
from offramp.params import refused, shown
from offramp.serve.fields import CALL_OUTPUT, INPUT_CALL, INPUT_MESSAGE, INPUT_TEXT, TEXT_ONLY
from offramp.serve.messages import BETWEEN_PARTS

TEXTS = ("input_text", "output_text", "text")
Message = dict[str, object]


def input_messages(value: object, instructions: str | None) -> list[Message]:
    """The conversation. Calls in a row, and what the model said right before them, are one message of its."""
    messages: list[Message] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(value, str):
        return [*messages, {"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise refused("input", value, "a text, or a list of items")
    for index, item in enumerate(value):
        _take(item, f"input[{index}]", messages)
    return messages


def _take(item: object, where: str, messages: list[Message]) -> None:
    """Add an item to the messages before it."""
    if not isinstance(item, dict):
        raise refused(where, item, "an item, such as a message")
    kind = item.get("type", "message")
    if kind == "message":
        messages.append(_message(read_object(item, where, INPUT_MESSAGE), where))
    elif kind == "function_call":
        _add_call(_call(read_object(item, where, INPUT_CALL), where), messages)
    elif kind == "function_call_output":
        kept = read_object(item, where, CALL_OUTPUT)
        content = _text_of(kept.get("output"), f"{where}.output")
        messages.append({"role": TOOL_ROLE, "content": content, "tool_call_id": _string(kept, "call_id", where)})
    else:
        message = f"{where}.type={shown(kind)}: this server has no such items"
        hint = "items are message, function_call and function_call_output"
        raise InvalidRequestError(message, hint=hint, param=f"{where}.type")


def _message(kept: Mapping[str, object], where: str) -> Message:
    role = kept.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise refused(f"{where}.role", role, f"one of {', '.join(ROLES)}")
    return {"role": ROLES[role], "content": _text_of(kept.get("content"), f"{where}.content")}


def _call(kept: Mapping[str, object], where: str) -> dict[str, object]:
    function = {"name": _string(kept, "name", where), "arguments": _string(kept, "arguments", where)}
    return {"id": _string(kept, "call_id", where), "type": "function", "function": function}


def _add_call(call: dict[str, object], messages: list[Message]) -> None:
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant":
        messages.append({"role": "assistant", "tool_calls": [call]})
        return
    calls = last.setdefault("tool_calls", [])
    assert isinstance(calls, list)
    calls.append(call)


def _text_of(content: object, where: str) -> str:
    """A content, given as a string or as a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        raise refused(where, content, "a string, or a list of text parts")
    return BETWEEN_PARTS.join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if not isinstance(part, dict):
        raise refused(where, part, 'an object such as {"type": "input_text", "text": "..."}')
    if part.get("type") not in TEXTS:
        message = f"{where}.type={shown(part.get('type'))}: {TEXT_ONLY}"
        raise InvalidRequestError(message, hint='parts have the type "input_text"', param=f"{where}.type")
    return _string(read_object(part, where, INPUT_TEXT), "text", where)


def _string(kept: Mapping[str, object], name: str, where: str) -> str:
    value = kept.get(name)
    if not isinstance(value, str):
        raise refused(f"{where}.{name}", value, "a string")
    return value
