"""Arguments in tags: how each value is written there, and the rules that hold answers to it.

A plain value is a string as it is, line ends and quotes included, up to the closing tag. All others are JSON, also
strings with a pattern or a format, for which there is no rule outside of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.grammar.schema import references
from offramp.model.tool_format import TAG_CLOSE, TAG_OPEN, TAG_VALUE
from offramp.params import shown

MAX_HOPS = 8
"""From reference to reference."""
SHARED = frozenset({"$defs", "definitions"})
NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "$schema", "$id", "$comment"})
"""Keywords that bind nothing."""
PLAIN = frozenset({"type", "enum", "const", "minLength", "maxLength"}) | NOTES | SHARED
OBJECT = frozenset({"type", "properties", "required", "additionalProperties"}) | NOTES | SHARED
"""Keywords of a function's parameters that rules can be made of; inside of a parameter all of JSON's are."""
IN_NAME = frozenset("<>\n")
"""Characters that end a name."""

ANY_TEXT = r"(.|\n)*"
CLOSING = TAG_CLOSE.strip().replace("/", r"\/")
END = rf"\n{CLOSING}\n"
EARLY_END = rf"/({ANY_TEXT}\n)?{CLOSING}{ANY_TEXT}{END}/"
"""A value that a reader would think closed before its end."""

Schema = Mapping[str, object]
JsonRule = Callable[[Schema], str]


@dataclass(frozen=True, slots=True)
class Parameters:
    """A function's parameters, as their schema tells."""

    schema: Schema

    @property
    def properties(self) -> dict[str, Schema]:
        """Those that have names, with the schemas of their values; without those that may never be there."""
        named = self.schema.get("properties")
        found = dict(named) if isinstance(named, Mapping) else {}
        found |= {name: self._others for name in self.required if name not in found}
        return {name: self.of(value) for name, value in found.items() if value is not False}

    @property
    def required(self) -> list[str]:
        """Names of those that must be there."""
        names = self.schema.get("required")
        return [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []

    @property
    def others(self) -> Schema | None:
        """The schema of parameters that have no names; None where there may be none."""
        return None if self._others is False else self.of(self._others)

    def value(self, name: str) -> Schema:
        """The schema of a parameter's values, whoever wrote the name."""
        return self.properties.get(name, self.others or {})

    def of(self, value: object) -> Schema:
        """A schema inside, with what it may refer to; a reference is followed."""
        for _ in range(MAX_HOPS):
            target = self._referred(value)
            if target is None:
                break
            value = target
        shared = {key: self.schema[key] for key in SHARED if key in self.schema}
        return {**value, **shared} if isinstance(value, Mapping) else shared

    @property
    def _others(self) -> object:
        return self.schema.get("additionalProperties", True)

    def _referred(self, value: object) -> object:
        """What a schema stands for that is nothing but a reference to a shared one; None for all others."""
        if not isinstance(value, Mapping) or set(value) - NOTES != {"$ref"}:
            return None
        head, _, name = str(value["$ref"]).rpartition("/")
        shared = self.schema.get(head.removeprefix("#/"))
        return shared.get(name) if head.startswith("#/") and isinstance(shared, Mapping) else None


def is_plain(schema: Schema) -> bool:
    """Whether values stand in their tags as they are."""
    if set(schema) - PLAIN or schema.get("type", "string") != "string":
        return False
    texts = _listed(schema)
    return "type" in schema if texts is None else len(texts) > 0


def tag_rules(
    name: str, parameters: Parameters, place: str, fixed: Callable[[str], str], json_rule: JsonRule
) -> Iterator[str]:
    """The rule `name` of a function's arguments, and those that it needs. Raises InvalidRequestError.

    `fixed` writes a text, `json_rule` JSON of a schema. Where parameters have names there are no others.
    """
    _check(parameters, place)
    properties = parameters.properties
    if not properties:
        yield from _open_rules(name, parameters, json_rule)
        return
    parts = [f"{name}_{number}{'' if key in parameters.required else '?'}" for number, key in enumerate(properties)]
    yield f"{name}: {' '.join(parts)}"
    for number, (key, schema) in enumerate(properties.items()):
        yield f"{name}_{number}: {fixed(TAG_OPEN + key + TAG_VALUE)} {name}_{number}_value"
        yield from _value_rules(f"{name}_{number}_value", schema, json_rule)


def _open_rules(name: str, parameters: Parameters, json_rule: JsonRule) -> Iterator[str]:
    """Of parameters without names: any, if there may be any."""
    others = parameters.others
    if others is None:
        yield f'{name}: ""'
        return
    key = f"{name}_key".upper()
    yield f"{name}: {name}_any*"
    yield f"{name}_any: {_quoted(TAG_OPEN)} {key} {_quoted(TAG_VALUE)} {name}_value"
    yield rf"{key}: /[^<>\n]+/"
    free = not set(others) - NOTES - SHARED  # any value will do, so any text will
    yield from _value_rules(f"{name}_value", {"type": "string"} if free else others, json_rule)


def _value_rules(name: str, schema: Schema, json_rule: JsonRule) -> Iterator[str]:
    """A value and what closes its tag."""
    if not is_plain(schema):
        yield f"{name}: {name}_json {_quoted(TAG_CLOSE)}"
        yield f"{name}_json: {json_rule(schema)}"
        return
    texts = _listed(schema)
    if texts is not None:
        yield f"{name}: {' | '.join(_quoted(text + TAG_CLOSE) for text in texts)}"
        return
    low, high = _bounds(schema)
    some = ANY_TEXT if (low, high) == (0, None) else rf"(.|\n){{{low},{'' if high is None else high}}}"
    yield f"{name}[lazy]: {name.upper()}"
    yield f"{name.upper()}: /{some}{END}/ & ~({EARLY_END})"


def _check(parameters: Parameters, place: str) -> None:
    """Refuse what tags can't say."""
    foreign = sorted(set(parameters.schema) - OBJECT)
    if foreign:
        hint = f"leave {foreign[0]} out, or put it into a parameter"
        message = f"the tools: {place}.{foreign[0]} can't be kept, since this model writes arguments in tags"
        raise InvalidRequestError(message, hint=hint, param=place)
    for reference in references(parameters.schema):  # a parameter's schema is compiled alone
        if not reference.startswith(tuple(f"#/{key}/" for key in SHARED)):
            message = f"the tools: {place}: the reference {shown(reference)} can't be kept in arguments in tags"
            raise InvalidRequestError(message, hint="put what it refers to into $defs", param=place)
    for name in parameters.properties:
        if not name or IN_NAME & set(name):
            message = f"the tools: {place}.properties: no tag can have the name {shown(name)}"
            raise InvalidRequestError(message, hint="give it a name without < and >", param=place)


def _listed(schema: Schema) -> list[str] | None:
    """The texts that a schema lists, if it does; none at all where one of the values has to be JSON."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list | tuple):
        return None
    low, high = _bounds(schema)
    texts = [value for value in listed if isinstance(value, str) and _is_safe(value)]
    fitting = [text for text in texts if low <= len(text) and (high is None or len(text) <= high)]
    return fitting if len(texts) == len(listed) else []


def _bounds(schema: Schema) -> tuple[int, int | None]:
    """Characters of a string, at least and at most."""
    low, high = schema.get("minLength"), schema.get("maxLength")
    return int(low) if isinstance(low, int | float) else 0, int(high) if isinstance(high, int | float) else None


def _is_safe(text: str) -> bool:
    """Whether a reader finds the end of this value where it is."""
    close = TAG_CLOSE.removesuffix("\n")
    return f"\n{text}{close}".find(close) == len(text) + 1


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
