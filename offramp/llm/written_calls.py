"""The JSON of whole calls -> the functions' names, and their arguments as JSON again."""

from __future__ import annotations

import json
from collections.abc import Collection

ARGUMENTS = ("arguments", "parameters")
"""What models call them."""


def calls_of(body: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Names and arguments of a JSON object, or of a list of them, if all of it is calls."""
    value = parsed(body)
    calls = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            return []
        given: object = next((each[key] for key in ARGUMENTS if key in each), {})
        arguments = written(parsed(given) if isinstance(given, str) else given)
        name = each.get("name")
        if not isinstance(name, str) or name not in names or arguments is None:
            return []
        calls.append((name, arguments))
    return calls


def named_call(name: str, body: str, names: Collection[str]) -> list[tuple[str, str]]:
    """The one call of a function whose name stood before its arguments, if it is one."""
    arguments = written(parsed(body))
    return [] if name not in names or arguments is None else [(name, arguments)]


def parsed(text: str) -> object:
    """The JSON value; None for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def written(arguments: object) -> str | None:
    """Arguments as JSON again; None if they are no object, or JSON can't say them."""
    if not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half a character, which only an escape can write
        return json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return text


def _refuse(constant: str) -> object:
    """NaN and infinities are no JSON."""
    raise ValueError(constant)
