"""A conversation as it is kept, saved and loaded: messages in the form of the OpenAI API."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import shown
from offramp.whole_file import whole_file

ROLES = ("system", "user", "assistant")

Turn = dict[str, str]
"""{"role": ..., "content": ...}"""


@dataclass(slots=True)
class Conversation:
    """Messages in order; the system message, if any, is the first."""

    messages: list[Turn] = field(default_factory=list)

    @property
    def system(self) -> str | None:
        first = self.messages[0] if self.messages else None
        return first["content"] if first and first["role"] == "system" else None

    def set_system(self, text: str | None) -> None:
        """Replace the system message; None or "" removes it."""
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = self.messages[:1] if self.system is not None else []

    def forget_oldest(self) -> bool:
        """Drop the oldest question with its answer; False if there is none."""
        start = 0 if self.system is None else 1
        if len(self.messages) <= start:
            return False
        stop = start + 1
        while stop < len(self.messages) and self.messages[stop]["role"] != "user":
            stop += 1
        del self.messages[start:stop]
        return True


def save(conversation: Conversation, path: Path) -> bool:
    """Write {"messages": [...]} as JSON, whole or not at all; whether it replaced a file."""
    _check_file(path)
    replaces = path.exists()
    text = json.dumps({"messages": conversation.messages}, ensure_ascii=False, indent=1)
    try:
        with whole_file(path) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise ResourceError(f"can't write {path}: {error.strerror or error}", hint="name another file") from error
    return replaces


def load(path: Path) -> Conversation:
    """Read what `save` wrote, or any JSON object with OpenAI-style text messages."""
    _check_file(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror or error}", hint="check the name") from error
    except (ValueError, RecursionError) as error:
        raise _foreign(path, "it is not JSON") from error
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list):
        raise _foreign(path, 'it has no list "messages"')
    return Conversation([_turn(path, index, message) for index, message in enumerate(messages)])


def _check_file(path: Path) -> None:
    """Refuse what has no end, such as a device, or would be lost, such as a folder; a new file is fine."""
    try:
        if "\0" not in str(path) and (path.is_file() or not path.exists()):
            return
        why = "is not a file"
    except OSError as error:
        why = f"can't be looked for: {error.strerror or error}"
    raise InvalidRequestError(f"{shown(str(path))} {why}", hint="name another file")


def _turn(path: Path, index: int, message: object) -> Turn:
    role = message.get("role") if isinstance(message, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if role not in ROLES or not isinstance(content, str):
        raise _foreign(path, f"message {index} has no known role or no text")
    if role == "system" and index:
        raise _foreign(path, f"message {index} is a system message in the middle")
    return {"role": str(role), "content": content}


def _foreign(path: Path, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path} is no saved conversation: {why}", hint="load a file that /save wrote")
