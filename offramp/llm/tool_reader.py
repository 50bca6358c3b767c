"""The text of an answer, as it comes -> what is said in it, and the calls of tools."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from offramp.llm.json_end import JsonEnd
from offramp.llm.tagged_arguments import TaggedArguments
from offramp.llm.written_calls import calls_of, named_call, parsed, written
from offramp.model.tool_format import ARGS, NAME, PYTHON_TAG, ToolFormat

ID_LETTERS = string.ascii_letters + string.digits
AROUND_BARE = "; \n\r\t"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """The next call; its arguments follow in pieces."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments."""

    index: int
    text: str


Part = str | CallBegins | CallArguments
"""A text is content."""


class ToolReader:
    """Cuts one choice's text into content and calls.

    Calls that a grammar wrote (`exact`) are told as they come, piece by piece. Others are held back until they are
    whole, and stay text where they are not well formed, or call a function that is not there: then nothing of the text
    is lost. White space around calls is no content.
    """

    def __init__(self, layout: ToolFormat, functions: Mapping[str, Mapping[str, object]], *, exact: bool) -> None:
        """`functions` are those that may be called, with the JSON schemas of their arguments."""
        self._layout = layout
        self._functions = functions
        self._exact = exact
        self._held = ""  # not told yet
        self._num_calls = 0
        self._said = False  # content has begun
        self._after_call = False  # and no content since
        self._state: Callable[[bool], Iterable[Part] | None] = self._read_text
        self._end = JsonEnd()  # of the arguments, or of the whole call, up to `_seen` characters of its text
        self._seen = 0
        self._tags: TaggedArguments | None = None  # of the call at hand, where arguments stand in tags
        self._name, self._told = "", ""  # its function, and what its arguments came to, until they are whole

    @property
    def num_calls(self) -> int:
        """Calls that have begun."""
        return self._num_calls

    @property
    def within_arguments(self) -> bool:
        """The text so far ends inside of a call's arguments."""
        return self._state in (self._read_exact_arguments, self._read_exact_tags)

    def push(self, text: str, *, last: bool = False) -> list[Part]:
        """What the next piece of text tells; with `last` also what was held back."""
        self._held += text
        parts: list[Part] = []
        while (step := self._state(last)) is not None:
            parts += step
        return _joined(parts)

    # Each state tells what it can and moves on, or returns None when it needs more text.

    def _read_text(self, last: bool) -> Iterable[Part] | None:
        if self._after_call:
            self._held = self._held.lstrip(AROUND_BARE if self._layout.bare else None)
        place = self._begin_of_calls()
        if place is not None:
            before = self._held[:place].rstrip()
            self._held = self._held[len(before) :]  # white space with it, should it be text after all
            self._state = self._read_exact_head if self._exact else self._read_call
            if self._layout.tags and not self._exact:
                self._state = self._read_tagged_head
            self._end, self._seen = JsonEnd(), 0
            return self._content(before)
        size = len(self._held) - (0 if last else self._undecided())
        told, self._held = self._held[:size], self._held[size:]
        return self._content(told) if told else None

    def _begin_of_calls(self) -> int | None:
        """Where in what is held the next call begins."""
        marker = self._layout.marker
        if marker:
            place = self._held.find(marker)
            return place if place >= 0 else None
        text = self._held.lstrip()
        opens = text.startswith(("{", PYTHON_TAG)) and not self._said
        return len(self._held) - len(text) if opens else None

    def _undecided(self) -> int:
        """Characters at the end of what is held that may yet belong to a call."""
        marker, held = self._layout.marker, self._held
        if not marker:
            return len(held) if not self._said and PYTHON_TAG.startswith(held.lstrip()) else 0
        partial = next((n for n in range(min(len(marker) - 1, len(held)), 0, -1) if marker.startswith(held[-n:])), 0)
        return len(held) - len(held[: len(held) - partial].rstrip())

    def _content(self, text: str) -> list[Part]:
        if not text:
            return []
        self._said, self._after_call = True, False
        return [text]

    # Calls that a grammar wrote: nothing follows them.

    def _read_exact_head(self, last: bool) -> Iterable[Part] | None:
        begin = self._layout.begin if self._num_calls == 0 else self._layout.between
        heads = {name: begin + self._layout.head_of(name) for name in self._functions}
        held = self._held if self._num_calls else self._held.lstrip()
        for name, head in heads.items():
            if held.startswith(head):
                self._held, self._end = held[len(head) :], JsonEnd()
                self._state = self._read_exact_arguments
                if self._layout.tags:
                    self._tags = TaggedArguments(self._functions[name], self._layout.tail)
                    self._state = self._read_exact_tags
                return [self._begin(name)]
        if self._num_calls == 0 and (last or not any(head.startswith(held) for head in heads.values())):
            return self._give_up()
        return None

    def _read_exact_arguments(self, last: bool) -> Iterable[Part] | None:
        if not self._held:
            return None
        size = self._end.find(self._held)
        text, self._held = self._held[:size], "" if size is None else self._held[size:]
        if size is not None:
            self._state = self._read_exact_tail
        return [CallArguments(self._num_calls - 1, text)]

    def _read_exact_tags(self, last: bool) -> Iterable[Part] | None:
        assert self._tags is not None
        if not self._held:
            return None
        told = self._tags.push(self._held)
        self._held = self._tags.rest
        if self._tags.ended:
            self._state = self._read_exact_tail
        return [CallArguments(self._num_calls - 1, told)] if told else []

    def _read_exact_tail(self, last: bool) -> Iterable[Part] | None:
        """Another call, or what ends the answer."""
        tail = self._layout.tail
        if not self._held.startswith(tail + self._layout.between):
            return None
        self._held = self._held[len(tail) :]
        self._state = self._read_exact_head
        return []

    # Calls that the model wrote by itself.

    def _read_call(self, last: bool) -> Iterable[Part] | None:
        opening = PYTHON_TAG if self._layout.bare else self._layout.marker
        text = self._held.lstrip().removeprefix(opening).lstrip()
        name = None
        if self._layout.named:
            name, separator, text = text.partition(ARGS)
            text = text.lstrip()
            if not separator and not last and any(f"{known}{ARGS}".startswith(name) for known in self._functions):
                return None
        if text and text[0] not in ("{" if self._layout.bare or name is not None else "{["):
            return self._give_up()
        size = self._end.find(text[self._seen :])
        if size is None:
            self._seen = len(text)
            return self._give_up() if last else None
        body, rest = text[: self._seen + size], text[self._seen + size :]
        known = self._functions
        calls = calls_of(body, known) if name is None else named_call(name.strip(), body, known)
        if not calls:
            return self._give_up()
        self._held = rest
        self._state = self._read_closing
        return [part for called in calls for part in self._whole(*called)]

    def _read_tagged_head(self, last: bool) -> Iterable[Part] | None:
        """The function's name; what its arguments come to is told when the call is whole."""
        opening = self._layout.head.partition(NAME)[0]
        text = self._held.lstrip().removeprefix(self._layout.marker).lstrip()
        name, closed, _ = text.removeprefix(opening).partition(">")
        if not text.startswith(opening) or not closed:
            waits = opening.startswith(text) or any(f"{opening}{known}>".startswith(text) for known in self._functions)
            return None if waits and not last else self._give_up()
        if name not in self._functions:
            return self._give_up()
        self._tags = TaggedArguments(self._functions[name], self._layout.tail)
        self._name, self._told = name, ""
        self._seen = self._held.index(">", self._held.index(opening)) + 1
        self._state = self._read_tagged_call
        return []

    def _read_tagged_call(self, last: bool) -> Iterable[Part] | None:
        assert self._tags is not None
        text, self._seen = self._held[self._seen :], len(self._held)
        self._told += self._tags.push(text)
        if not self._tags.ended:
            return self._give_up() if last or self._tags.broken else None
        arguments = written(parsed(self._told))
        if arguments is None:
            return self._give_up()
        self._held = self._tags.rest.removeprefix(self._layout.tail)
        self._state = self._read_closing
        return self._whole(self._name, arguments)

    def _read_closing(self, last: bool) -> Iterable[Part] | None:
        """The tag behind a call; one that the model forgot is not missed."""
        closing, text = self._layout.closing, self._held.lstrip()
        if text.startswith(closing):
            self._held = text.removeprefix(closing)
        elif closing.startswith(text):
            if not last:
                return None
            self._held = ""
        self._state = self._read_text
        return []

    def _whole(self, name: str, arguments: str) -> list[Part]:
        return [self._begin(name), CallArguments(self._num_calls - 1, arguments)]

    def _give_up(self) -> list[Part]:
        """What is held begins with text after all: that far, then the rest is looked at anew."""
        size = len(self._held) - len(self._held.lstrip()) + max(1, len(self._layout.marker))
        told, self._held = self._held[:size], self._held[size:]
        self._state = self._read_text
        return self._content(told)

    def _begin(self, name: str) -> CallBegins:
        self._num_calls += 1
        self._after_call = True
        return CallBegins(self._num_calls - 1, call_id(self._layout.id_len), name)


def call_id(length: int) -> str:
    """A fresh id; the short ones are those that Mistral's templates ask for."""
    letters = "".join(secrets.choice(ID_LETTERS) for _ in range(length))
    return letters if length < 10 else f"call_{letters}"


def read_whole(reader: ToolReader, text: str) -> tuple[str, list[ToolCall]]:
    """Content and calls of a whole answer."""
    content = ""
    calls: list[ToolCall] = []
    for part in reader.push(text, last=True):
        if isinstance(part, str):
            content += part
        elif isinstance(part, CallBegins):
            calls.append(ToolCall(part.id, part.name, ""))
        else:
            last = calls[part.index]
            calls[part.index] = ToolCall(last.id, last.name, last.arguments + part.text)
    return content, calls


def _joined(parts: list[Part]) -> list[Part]:
    """Neighbouring texts as one."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part:
            joined.append(part)
    return joined
