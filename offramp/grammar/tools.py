"""Grammars of answers that call tools: which functions, with which arguments, how many calls, and what else.

Arguments are written as `json.dumps` does, without other white space: so models saw them, and most of a call is forced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offramp.grammar.sources import Source
from offramp.grammar.tags import ANY_TEXT, Parameters, tag_rules
from offramp.model.tool_format import ToolFormat, special_pieces

OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}
JSON_PIECES = re.compile(r'"[^"]*"|: |, |\{')
HINT = "make the functions' parameters simpler"

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One that may be called. Errors name the `place` of its schema."""

    name: str
    schema: Schema  # of the arguments
    place: str = "tools"

    @property
    def arguments(self) -> Schema:
        """They are an object, whatever the schema leaves open."""
        return {"type": "object", **self.schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What an answer may be: calls of these functions, and with `text` also an answer without calls, or text before.

    With `content` such an answer is JSON of that schema, and nothing stands before calls.
    """

    format: ToolFormat
    functions: tuple[Function, ...]
    parallel: bool  # several calls in one answer
    text: bool
    content: Schema | None = None


def source_of_calls(asked: ToolAnswer, specials: Sequence[tuple[int, str]]) -> Source:
    """As llguidance reads it; `specials` are the model's special tokens, which no text of an answer holds."""
    from llguidance import LLMatcher

    text = "\n".join(_Lark(asked, specials).lines())
    return Source(text=LLMatcher.grammar_from_lark(text), what="the tools", param="tools", hint=HINT)


class _Lark:
    """The rules of one grammar."""

    def __init__(self, asked: ToolAnswer, specials: Sequence[tuple[int, str]]) -> None:
        self._asked = asked
        self._specials = specials

    def lines(self) -> list[str]:
        asked, layout = self._asked, self._asked.format
        more = f"({self._fixed(layout.between)} call)*" if asked.parallel else ""
        lines = [
            self._start(),
            f"calls: call {more} {self._fixed(layout.end)}",
            "call: " + " | ".join(f"call_{number}" for number in range(len(asked.functions))),
        ]
        for number, function in enumerate(asked.functions):
            head, tail = self._head(function.name), self._fixed(layout.tail)
            lines.append(f"call_{number}: {head} args_{number} {tail}")
            lines += self._arguments(f"args_{number}", function)
        return [*lines, *self._text_rules()]

    def _arguments(self, name: str, function: Function) -> Iterable[str]:
        """The rule of a function's arguments."""
        if not self._asked.format.tags:
            return [f"{name}: {_json_rule(function.arguments)}"]
        return tag_rules(name, Parameters(function.arguments), function.place, self._fixed, _json_rule)

    def _start(self) -> str:
        layout = self._asked.format
        calls = f"{self._fixed(layout.begin)} calls"
        if self._asked.content is not None:
            return f"start: content | {calls}"
        if not self._asked.text:
            return f"start: {calls}"
        if layout.bare:
            return f"start: TEXT | {calls}"
        return f"start: TEXT | lead {self._fixed(layout.begin.removeprefix(layout.marker))} calls"

    def _text_rules(self) -> list[str]:
        """Text ends at the marker; where there is none, what begins like JSON is a call."""
        asked, marker = self._asked, self._asked.format.marker
        if asked.content is not None:
            return [f"content: {_json_rule(asked.content)}"]
        if not asked.text:
            return []
        if not marker:
            return [rf"TEXT: /([^{{\s]{ANY_TEXT})?/"]
        pieces = special_pieces(marker, self._specials)
        if not all(isinstance(piece, str) for piece in pieces):  # no text holds it
            return [f"lead: TEXT {self._fixed(marker)}", f"TEXT: /{ANY_TEXT}/"]
        pattern = re.escape(marker).replace("/", r"\/")
        return [
            f"lead[lazy]: ANY {_quoted(marker)}",
            f"ANY: /{ANY_TEXT}/",
            f"TEXT: /{ANY_TEXT}/ & ~(/{ANY_TEXT}{pattern}{ANY_TEXT}/)",
        ]

    def _head(self, name: str) -> str:
        """Beside JSON that is no call, bare calls are cut as that JSON is: the longest lexeme would win otherwise."""
        head = self._asked.format.head_of(name)
        if not self._asked.format.bare or self._asked.content is None:
            return self._fixed(head)
        return " ".join(_quoted(piece) for piece in JSON_PIECES.findall(head))

    def _fixed(self, text: str) -> str:
        """A fixed text, special tokens by their ids."""
        pieces = special_pieces(text, self._specials)
        return " ".join(_quoted(piece) if isinstance(piece, str) else f"<[{piece}]>" for piece in pieces)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json_rule(schema: Schema) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': OPTIONS}, allow_nan=False)}"
