"""What can be said of a JSON schema without compiling it: its depth, whether it has an end, which part is at fault."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from offramp.errors import InvalidRequestError
from offramp.json_depth import MOST_LEVELS, is_too_deep
from offramp.params import refused, shown

MAX_MULTIPLE = 10_000
LEAST_NUMBER, LARGEST_NUMBER = 1e-9, 2**53
BLAME_SECONDS = 1.0
"""For looking at parts of a schema alone, to find one at fault."""

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
IN_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
ALONE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
OPTIONS_KEY = "x-guidance"
SHARED = ("$defs", "definitions")
PARAM = "structured_outputs.json"

Schema = Mapping[str, object]


def parsed_schema(text: str) -> dict[str, object]:
    """The schema's object. Raises InvalidRequestError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the JSON schema is not JSON: {error}", hint="give a JSON schema", param=PARAM
        ) from None
    if not isinstance(value, dict):
        raise refused(PARAM, value, "a JSON schema, which is an object")
    return value


def check_depth(schema: object) -> None:
    """Refuse what is nested too deeply for anyone to read."""
    if is_too_deep(schema):
        hint = "put inner schemas into $defs"
        raise InvalidRequestError(f"the JSON schema is nested more than {MOST_LEVELS} deep", hint=hint, param=PARAM)


def check_options(schema: Schema) -> None:
    """Refuse options of llguidance: with some of them answers would be no JSON, or have no end."""
    if OPTIONS_KEY in schema:
        hint = "leave it out; structured_outputs.whitespace_pattern says what may stand between the parts"
        raise InvalidRequestError(f"the JSON schema, at #/{OPTIONS_KEY}: it can't be kept", hint=hint, param=PARAM)


def check_numbers(schema: object) -> None:
    """Refuse numbers that no double holds exactly or nearly so: llguidance rounds some, and breaks on others."""
    level = [("#", schema)]
    while level:
        place, value = level.pop()
        if isinstance(value, dict):
            level += [(f"{place}/{_escaped(name)}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            level += [(f"{place}/{index}", inner) for index, inner in enumerate(value)]
        elif isinstance(value, int | float) and value and not LEAST_NUMBER <= abs(value) <= LARGEST_NUMBER:
            hint = f"numbers may be 0, or of size {LEAST_NUMBER:g} to 2**53"
            message = f"the JSON schema, at {place}: {shown(value)} can't be kept exactly"
            raise InvalidRequestError(message, hint=hint, param=PARAM)


def check_multiples(schema: object) -> None:
    """Refuse `multipleOf` of 0 or less, and beyond what automata do soon: their size is the least common multiple."""
    common = 1
    for place, inner in (("#", schema), *((f"#/{name}", inner) for name, inner in _everywhere(schema))):
        factor = inner.get("multipleOf") if isinstance(inner, dict) else None
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            continue
        if factor <= 0:
            message = f"the JSON schema, at {place}: multipleOf={shown(factor)} is not above 0"
            raise InvalidRequestError(message, hint="give a number above 0", param=PARAM)
        if math.isfinite(factor):
            digits = "".join(map(str, Decimal(repr(factor)).normalize().as_tuple().digits))
            whole = int(factor) if factor == int(factor) else int(digits)
            common = math.lcm(common, whole) if whole <= MAX_MULTIPLE else whole
        if common > MAX_MULTIPLE:
            hint = f"keep the least common multiple of all multipleOf under {MAX_MULTIPLE}"
            message = f"the JSON schema, at {place}: multipleOf={shown(factor)} is too large"
            raise InvalidRequestError(message, hint=hint, param=PARAM)


def children(schema: object) -> Iterator[tuple[str, object]]:
    """The schemas right inside one, each with its place."""
    if not isinstance(schema, dict):
        return
    for key in BY_NAME:
        named = schema.get(key)
        if isinstance(named, dict):
            yield from ((f"{key}/{_escaped(name)}", inner) for name, inner in named.items())
    for key in IN_LISTS:
        listed = schema.get(key)
        if isinstance(listed, list):
            yield from ((f"{key}/{index}", inner) for index, inner in enumerate(listed))
    for key in ALONE:
        if isinstance(schema.get(key), dict):
            yield key, schema[key]


def blamed(schema: Schema, error: str, error_of: Callable[[Schema], str]) -> str:
    """The place of the smallest part that alone has the same error, as a JSON pointer; "#" is the whole."""
    shared = {key: schema[key] for key in SHARED if key in schema}
    place, here, deadline = "#", schema, time.monotonic() + BLAME_SECONDS
    while True:
        for name, inner in children(here):
            if time.monotonic() > deadline:
                return place
            if isinstance(inner, dict) and error_of({**shared, **inner}) == error:
                place, here = f"{place}/{name}", inner
                break
        else:
            return place


def unending(schema: Schema) -> str | None:
    """The place of a schema whose every value holds another value of itself, if all values need one; None if not."""
    referred = set(references(schema))
    targets = {f"#/{name}": inner for name, inner in _everywhere(schema) if f"#/{name}" in referred} | {"#": schema}
    users: dict[str, list[str]] = {}  # by place: who refers to it
    for place, target in targets.items():
        for reference in references(target):
            users.setdefault(reference, []).append(place)
    ends = dict.fromkeys(targets, False)
    waiting = list(targets)
    while waiting:
        place = waiting.pop()
        if not ends[place] and _has_end(targets[place], ends):
            ends[place] = True
            waiting += users.get(place, ())
    if ends["#"]:
        return None
    return next((place for place in references(schema) if ends.get(place) is False), "#")


def _has_end(schema: object, ends: Mapping[str, bool]) -> bool:
    """Whether some value is finite, given which places are known to have one. What isn't understood has."""
    if not isinstance(schema, dict):
        return True
    reference = schema.get("$ref")
    if isinstance(reference, str) and not ends.get(reference, True):
        return False
    if "const" in schema or "enum" in schema:
        return True
    for key, enough in (("allOf", all), ("anyOf", any), ("oneOf", any)):
        listed = schema.get(key)
        if isinstance(listed, list) and listed and not enough(_has_end(inner, ends) for inner in listed):
            return False
    kinds = schema.get("type")
    if kinds == "object":
        return _object_has_end(schema, ends)
    return kinds != "array" or _array_has_end(schema, ends)


def _object_has_end(schema: Schema, ends: Mapping[str, bool]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return True
    return all(_has_end(properties.get(name, {}), ends) for name in required if isinstance(name, str))


def _array_has_end(schema: Schema, ends: Mapping[str, bool]) -> bool:
    least = schema.get("minItems", 0)
    first = schema.get("prefixItems")
    listed = first if isinstance(first, list) else []
    if not isinstance(least, int) or least <= 0:
        return True
    return all(_has_end(inner, ends) for inner in listed[:least]) and (
        least <= len(listed) or _has_end(schema.get("items", {}), ends)
    )


def _everywhere(schema: object, above: str = "") -> Iterator[tuple[str, object]]:
    """All schemas inside one, with their places."""
    for name, inner in children(schema):
        yield above + name, inner
        yield from _everywhere(inner, f"{above}{name}/")


def references(schema: object) -> Iterator[str]:
    """Where a schema, and all inside it, refers to."""
    for _, inner in (("", schema), *_everywhere(schema)):
        if isinstance(inner, dict) and isinstance(inner.get("$ref"), str):
            yield inner["$ref"]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
