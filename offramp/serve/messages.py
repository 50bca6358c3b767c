"""Messages of a chat as the model's template takes them: a role and one text each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.errors import InvalidRequestError
from offramp.llm.prompts import ROLES, TOOL_ROLE
from offramp.params import refused, shown
from offramp.serve.fields import CALLED_FUNCTION, MESSAGE, TEXT_ONLY, TEXT_PART, TOOL_CALL

KNOWN_ROLES = {**ROLES, TOOL_ROLE: TOOL_ROLE}

BETWEEN_PARTS = "\n"


def template_messages(messages: Sequence[object]) -> list[dict[str, object]]:
    """Checked; text parts of a content are joined by line ends. Raises InvalidRequestError naming the place."""
    if not messages:
        raise InvalidRequestError("messages=[] has no messages", hint="give at least one", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def texts_of(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """The contents of checked messages, and the calls in them."""
    texts = [str(message["content"]) for message in messages if "content" in message]
    for message in messages:
        calls = message.get("tool_calls", ())
        assert isinstance(calls, list | tuple)
        texts += [text for call in calls for text in (call["function"]["name"], call["function"]["arguments"])]
    return texts


def text_of(content: object, where: str) -> str:
    """A content, given as a string or as a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise refused(where, content, "a string, or a list of text parts")
    return BETWEEN_PARTS.join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _message(message: object, where: str) -> dict[str, object]:
    if not isinstance(message, dict):
        raise refused(where, message, 'an object such as {"role": "user", "content": "..."}')
    kept = MESSAGE.keep_honoured(message, where)
    values: dict[str, object] = {"role": _role(kept.get("role"), f"{where}.role")}
    calls = _calls(kept.get("tool_calls"), f"{where}.tool_calls")
    if not calls or kept.get("content"):
        values["content"] = text_of(kept.get("content"), f"{where}.content")
    if calls:
        _belongs(values["role"], "assistant", f"{where}.tool_calls")
        values["tool_calls"] = calls
    if "tool_call_id" in kept:
        _belongs(values["role"], TOOL_ROLE, f"{where}.tool_call_id")
    for name in ("name", "tool_call_id"):
        if name in kept:
            values[name] = _text(kept[name], f"{where}.{name}")
    return values


def _role(role: object, where: str) -> str:
    if isinstance(role, str) and role in KNOWN_ROLES:
        return KNOWN_ROLES[role]
    raise refused(where, role, f"one of {', '.join(KNOWN_ROLES)}")


def _belongs(role: object, owner: str, where: str) -> None:
    if role != owner:
        message = f"{where}: a message of the role {role} has none"
        raise InvalidRequestError(message, hint=f"the role {owner} has it", param=where)


def _calls(value: object, where: str) -> list[dict[str, object]]:
    """Calls that the model made earlier."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise refused(where, value, "a list of calls")
    return [_call(each, f"{where}[{index}]") for index, each in enumerate(value)]


def _call(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise refused(where, value, "a call: an object with id, type and function")
    kept = TOOL_CALL.keep_honoured(value, where)
    if kept.get("type", "function") != "function":
        raise refused(f"{where}.type", kept["type"], '"function"')
    function = kept.get("function")
    if not isinstance(function, dict):
        raise refused(f"{where}.function", function, "an object with name and arguments")
    called = CALLED_FUNCTION.keep_honoured(function, f"{where}.function")
    name = _text(called.get("name"), f"{where}.function.name")
    arguments = _text(called.get("arguments"), f"{where}.function.arguments")
    written: dict[str, object] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": _text(kept["id"], f"{where}.id"), **written} if "id" in kept else written


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refused(where, value, "a string")
    return value


def _part(part: object, where: str) -> str:
    if not isinstance(part, dict):
        raise refused(where, part, 'an object such as {"type": "text", "text": "..."}')
    if part.get("type") != "text":
        message = f"{where}.type={shown(part.get('type'))}: {TEXT_ONLY}"
        raise InvalidRequestError(message, hint='parts have the type "text"', param=f"{where}.type")
    kept = TEXT_PART.keep_honoured(part, where)
    return _text(kept.get("text"), f"{where}.text")
