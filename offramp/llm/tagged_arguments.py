"""Arguments that stand in tags, as their text comes -> the same as a JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from offramp.grammar.tags import Parameters, is_plain
from offramp.llm.written_calls import parsed
from offramp.model.tool_format import TAG_CLOSE, TAG_OPEN

CLOSE_LINE = TAG_CLOSE.removesuffix("\n")  # of a value that begins on a line of its own
CLOSE = CLOSE_LINE.strip()
WORDS = {"True": "true", "False": "false", "None": "null"}
"""As templates in Python write them."""
KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int, float),  # 5.0 is one
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class TaggedArguments:
    """Follows one call, from behind the function's name up to `tail`, which is not taken.

    Strings are told as they come, other values when they are whole. A parameter that is there twice counts once.
    """

    def __init__(self, schema: Mapping[str, object], tail: str) -> None:
        self._parameters = Parameters(schema)
        self._tail = tail
        self._held = ""
        self._names: set[str] = set()
        self._silent = False  # the parameter at hand was there before
        self._plain = False  # its value is told as it comes
        self._close = CLOSE
        self._value: Mapping[str, object] = {}  # its schema
        self._state: Callable[[], str | None] = self._read_tag
        self.ended = False
        self.broken = False

    @property
    def rest(self) -> str:
        """The text that was not taken, of a call that has ended: its tail, and what follows."""
        return self._held if self.ended else ""

    def push(self, text: str) -> str:
        """The next piece of the JSON object."""
        self._held += text
        told = ""
        while not (self.ended or self.broken) and (step := self._state()) is not None:
            told += step
        return told

    # Each state tells what it can and moves on, or returns None when it needs more text.

    def _read_tag(self) -> str | None:
        self._held = self._held.lstrip()
        if self._held.startswith(self._tail):
            self.ended = True
            return "}" if self._names else "{}"
        name, closed, rest = self._held.removeprefix(TAG_OPEN).partition(">")
        if not self._held.startswith(TAG_OPEN) or "\n" in name:
            self.broken = not any(tag.startswith(self._held) for tag in (TAG_OPEN, self._tail))
            return None
        if not closed:
            return None
        self._held = rest
        self._state = self._read_opening
        return self._begin(name)

    def _begin(self, name: str) -> str:
        """Of a parameter, its name."""
        self._silent = name in self._names
        lead = ", " if self._names else "{"
        self._names.add(name)
        self._value = self._parameters.value(name)
        self._plain = is_plain(self._value)
        return "" if self._silent else lead + _text(name) + (': "' if self._plain else ": ")

    def _read_opening(self) -> str | None:
        """Whether the value has a line of its own, which models are asked for; one that is empty may have none."""
        if len(self._held) < len(CLOSE_LINE) and CLOSE_LINE.startswith(self._held):
            return None
        on_line = self._held.startswith("\n")
        self._close = CLOSE_LINE if on_line else CLOSE
        if on_line and not self._held.startswith(CLOSE_LINE):
            self._held = self._held[1:]
        self._state = self._read_plain if self._plain else self._read_json
        return ""

    def _read_plain(self) -> str | None:
        place = self._held.find(self._close)
        if place < 0:
            size = len(self._held) - _begun(self._held, self._close)
            told, self._held = self._held[:size], self._held[size:]
            return self._told(_text(told)[1:-1]) if told else None
        told = self._held[:place]
        self._leave(place)
        return self._told(f'{_text(told)[1:-1]}"')

    def _read_json(self) -> str | None:
        place = self._held.find(self._close)
        if place < 0:
            return None
        value = self._held[:place]
        self._leave(place)
        return self._told(_json_of(value, self._value))

    def _leave(self, place: int) -> None:
        """The value ends there."""
        self._held = self._held[place + len(self._close) :]
        self._state = self._read_tag

    def _told(self, text: str) -> str:
        return "" if self._silent else text


def _begun(text: str, close: str) -> int:
    """Characters at the end of a text that may be the beginning of what closes it."""
    return next((size for size in range(min(len(close) - 1, len(text)), 0, -1) if close.startswith(text[-size:])), 0)


def _json_of(text: str, schema: Mapping[str, object]) -> str:
    """A value as JSON: what it is, if it is JSON of a kind that the schema names, or else a string."""
    stripped = text.strip()
    written = WORDS.get(stripped, stripped)
    value = parsed(written)
    if value is None and written != "null":
        return _text(text)
    kinds = _kinds(schema)
    fits = "string" not in kinds or any(type(value) in KINDS.get(kind, ()) for kind in kinds)
    return written if fits else _text(text)


def _kinds(schema: Mapping[str, object]) -> set[str]:
    """The types that a schema names; none if it leaves them open."""
    named = schema.get("type")
    if named is not None:
        return {kind for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str)}
    branches = schema.get("anyOf", schema.get("oneOf"))
    found = [_kinds(branch) for branch in branches if isinstance(branch, Mapping)] if isinstance(branches, list) else []
    return set[str]().union(*found) if all(found) else set()


def _text(text: str) -> str:
    try:
        written = json.dumps(text, ensure_ascii=False)
        written.encode()
    except UnicodeEncodeError:  # half a character
        return json.dumps(text)
    return written
