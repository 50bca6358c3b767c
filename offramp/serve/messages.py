"""Messages of a chat as the model's template takes them: a role and one text each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.errors import InvalidRequestError
from offramp.llm.prompts import ROLES
from offramp.params import refused, shown
from offramp.serve.fields import MESSAGE, NO_TOOLS, TEXT_ONLY, TEXT_PART

TOOL_ROLES = ("tool", "function")

BETWEEN_PARTS = "\n"


def template_messages(messages: Sequence[object]) -> list[dict[str, object]]:
    """Checked; text parts of a content are joined by line ends. Raises InvalidRequestError naming the place."""
    if not messages:
        raise InvalidRequestError("messages=[] has no messages", hint="give at least one", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def texts_of(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """The contents of checked messages."""
    return [str(message["content"]) for message in messages]


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
    values["content"] = text_of(kept.get("content"), f"{where}.content")
    if "name" in kept:
        if not isinstance(kept["name"], str):
            raise refused(f"{where}.name", kept["name"], "a string")
        values["name"] = kept["name"]
    return values


def _role(role: object, where: str) -> str:
    if isinstance(role, str) and role in ROLES:
        return ROLES[role]
    if role in TOOL_ROLES:
        raise InvalidRequestError(f"{where}={shown(role)}: {NO_TOOLS}", hint="put the text into a message", param=where)
    raise refused(where, role, f"one of {', '.join(ROLES)}")


def _part(part: object, where: str) -> str:
    if not isinstance(part, dict):
        raise refused(where, part, 'an object such as {"type": "text", "text": "..."}')
    if part.get("type") != "text":
        message = f"{where}.type={shown(part.get('type'))}: {TEXT_ONLY}"
        raise InvalidRequestError(message, hint='parts have the type "text"', param=f"{where}.type")
    kept = TEXT_PART.keep_honoured(part, where)
    text = kept.get("text")
    if not isinstance(text, str):
        raise refused(f"{where}.text", text, "a string")
    return text
