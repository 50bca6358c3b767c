"""What callers write -> what llguidance reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.core import StructuredOutputsParams
from offramp.errors import InvalidRequestError
from offramp.grammar.schema import parsed_schema
from offramp.params import shown

MAX_CHARACTERS = 1 << 16
"""Of a schema, regular expression or grammar, and of all choices together."""
MAX_COLONS = 256
REPEATED = re.compile(r"[*+%]|,\s*\}")
"""Is in every grammar with a lexeme that has no longest text; `%` imports such ones."""
INNER = re.compile(r"%\s*(json|lark|llguidance)")
"""Grammars within a grammar, and options of llguidance."""
NO_FORCING = '%llguidance {"no_forcing": true}\n'
GRAMMAR_HINT = "write a Lark or GBNF grammar, its first rule called start or root"
_BLANK = r"(?:[ \t\n\r]|\\[tnr]|\\x(?:20|09|0[aAdD]))"
BLANKS = re.compile(rf"(?:{_BLANK}|\[{_BLANK}+\]|\((?:\?:)?|[)|?*+]|\{{\d+(?:,\d*)?\}})+")
"""Patterns that match nothing but what JSON takes for white space."""
WHITESPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""Between the parts of JSON: bounded, or a model that likes spaces never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A grammar as text. `schema` is the JSON schema that it came from, if any."""

    text: str
    what: str  # it is, in words
    param: str
    hint: str
    schema: str | None = None
    options: str = "{}"
    forces: bool = True
    """What it forces may be looked for. A lexeme that goes on through what must follow it, as in `/a+/ "ab"`, forces
    the same bytes for ever, and llguidance would go after them for as long.
    """

    def of_schema(self, schema: Mapping[str, object]) -> str:
        """Another schema under the same options."""
        return _schema_grammar(_json_text(schema), json.loads(self.options))


def source_of(asked: StructuredOutputsParams) -> Source:
    """The one thing that the answer must be. Raises InvalidRequestError."""
    from llguidance import LLMatcher

    if asked.json_object or asked.json is not None:
        return _json_source(asked)
    if asked.regex is not None:
        return Source(
            text=LLMatcher.grammar_from_regex(_bounded("regex", asked.regex)),
            what="the regular expression",
            param="structured_outputs.regex",
            hint="use the syntax of Rust's regex crate: no look-around, no back-references",
        )
    if asked.choice is not None:
        return Source(
            text=LLMatcher.grammar_from_lark(_choice_grammar(asked.choice)),
            what="the list of choices",
            param="structured_outputs.choice",
            hint="give a list of texts",
        )
    assert asked.grammar is not None
    text = _lark(_bounded("grammar", asked.grammar))
    forces = REPEATED.search(text) is None
    return Source(
        text=LLMatcher.grammar_from_lark(text if forces else NO_FORCING + text),
        what="the grammar",
        param="structured_outputs.grammar",
        hint=GRAMMAR_HINT,
        forces=forces,
    )


def _json_source(asked: StructuredOutputsParams) -> Source:
    schema = {"type": "object"} if asked.json_object else asked.json
    text = schema if isinstance(schema, str) else _json_text(schema)
    _bounded("json", text)
    _check_whitespace(asked.whitespace_pattern)
    options: dict[str, object] = {"whitespace_pattern": asked.whitespace_pattern or WHITESPACE}
    if asked.disable_any_whitespace:
        options = {"whitespace_flexible": False}
    parsed_schema(text)
    return Source(
        text=_schema_grammar(text, options),
        what="the JSON schema",
        param="structured_outputs.json",
        hint="leave the keyword out, or write the schema another way",
        schema=text,
        options=json.dumps(options),
    )


def _check_whitespace(pattern: str | None) -> None:
    """Refuse a pattern that may match more than white space: answers would be no JSON, or have no end."""
    if pattern is None or BLANKS.fullmatch(_bounded("whitespace_pattern", pattern)):
        return
    hint = "write it with spaces, \\t, \\n and \\r alone, such as [ \\n]{0,4}"
    message = f"whitespace_pattern={shown(pattern)} may match more than JSON's white space"
    raise InvalidRequestError(message, hint=hint, param="structured_outputs.whitespace_pattern")


def _json_text(schema: object) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give a JSON schema"
        message = f"the JSON schema can't be written as JSON: {error}"
        raise InvalidRequestError(message, hint=hint, param="structured_outputs.json") from None


def _schema_grammar(schema: str, options: Mapping[str, object]) -> str:
    """What is not understood is an error (`lenient`), whatever the schema says of itself."""
    from llguidance import LLMatcher

    overrides = {**options, "lenient": False, "coerce_one_of": False}
    try:
        return LLMatcher.grammar_from_json_schema(schema, overrides=overrides)  # type: ignore[arg-type]
    except ValueError as error:  # it reads JSON more strictly than Python
        hint = "write numbers that are finite, and whole characters"
        raise InvalidRequestError(f"the JSON schema: {error}", hint=hint, param="structured_outputs.json") from None


def _choice_grammar(choices: Sequence[str]) -> str:
    _bounded("choice", "".join(choices))
    return "start: " + " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)


def _lark(text: str) -> str:
    from llguidance.gbnf_to_lark import any_to_lark

    param = "structured_outputs.grammar"
    if text.replace("::=", ":").count(":") > MAX_COLONS:  # rules that refer to rules are followed on the stack
        raise InvalidRequestError(f"the grammar has more than {MAX_COLONS} colons", hint="use fewer rules", param=param)
    inner = INNER.search(text)
    if inner is not None:  # what grammars and JSON schemas are checked for would be missed
        hint = "leave it out; for JSON use structured_outputs.json"
        raise InvalidRequestError(f"the grammar holds {inner[0]}, which is not allowed", hint=hint, param=param)
    try:
        return any_to_lark(text)
    except Exception as error:  # the converter raises plain Exception, and whatever its parsing stumbles over
        message = f"the grammar: {error!s:.200}"
        raise InvalidRequestError(message, hint=GRAMMAR_HINT, param=param) from error


def _bounded(name: str, text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequestError(
            f"{name} has {len(text)} characters",
            hint=f"it may have {MAX_CHARACTERS}",
            param=f"structured_outputs.{name}",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        hint = "send valid Unicode text"
        param = f"structured_outputs.{name}"
        raise InvalidRequestError(f"{name} holds a lone surrogate", hint=hint, param=param) from None
    return text
