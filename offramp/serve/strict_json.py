"""A request's body as JSON, read strictly: what JSON does not have, or says twice, is refused by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from offramp.errors import InvalidRequestError
from offramp.params import refused

MAX_DEPTH = 64
"""Lists and objects within each other."""

MAX_PARTS = 1 << 18
"""Strings, lists and objects of one body. Nobody else's Python runs while they are made."""

MAX_VALUES = 1 << 20
"""Values of one body, numbers included."""

STRINGS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)  # also one without an end, so that none is read twice
SAME = bytes.maketrans(b"{}", b"[]")
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
HINT = "send one JSON object, encoded as UTF-8"


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in `body`. Raises InvalidRequestError, naming the field where there is one."""
    if not body.strip():
        raise InvalidRequestError("the body is empty", hint=HINT)
    too_deep = _nests_deeper(_brackets(body), MAX_DEPTH)
    try:
        value = _Reader().read(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8 (byte {error.start})", hint=HINT) from error
    except RecursionError as error:
        raise _deep() from error
    except ValueError as error:  # also a number of thousands of digits
        raise InvalidRequestError(f"the body is not JSON: {_reason(error)}", hint=HINT) from error
    if too_deep:
        raise _deep()
    if not isinstance(value, dict):
        raise InvalidRequestError(f"the body is {_kind(value)}, not an object", hint=HINT)
    if b"\\u" in body:
        _refuse_surrogates(value)
    return value


class _Reader:
    """One reading; notes numbers that JSON can't hold, to be named once all is read."""

    def __init__(self) -> None:
        self._all_finite = True

    def read(self, text: str) -> object:
        value: object = json.loads(
            text, object_pairs_hook=_pairs, parse_float=self._number, parse_constant=self._number
        )
        if not self._all_finite:
            for name, number in _numbers(value, ""):
                if not math.isfinite(number):
                    raise refused(name, number, "a finite number")
        return value

    def _number(self, text: str) -> float:
        number = float(text)
        self._all_finite &= math.isfinite(number)
        return number


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequestError(f"the field {name[:80]!r} is given twice", hint="give it once", param=name[:80])
    return values


def _numbers(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Every float with the name of its place, such as messages[0].weight."""
    if isinstance(value, float):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{name}[{index}]")


def _brackets(body: bytes) -> bytes:
    """Those outside of strings, all square. Raises InvalidRequestError when the body holds too much."""
    between: list[bytes] = []
    end = 0
    for number, string in enumerate(STRINGS.finditer(body)):
        if number == MAX_PARTS:
            raise _many()
        between.append(body[end : string.start()])
        end = string.end()
    outside = b"".join([*between, body[end:]])
    brackets = outside.translate(SAME, NOT_BRACKETS)
    if len(between) + brackets.count(b"[") > MAX_PARTS or outside.count(b",") > MAX_VALUES:
        raise _many()
    return brackets


def _nests_deeper(brackets: bytes, most: int) -> bool:
    """Whether they nest deeper, where they match at all; takes at most `most` quick passes."""
    for _ in range(most):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _refuse_surrogates(value: dict[str, object]) -> None:
    r"""An escape such as \ud800 alone is no character, and nothing that we send could hold it."""
    for name, inner in value.items():
        try:
            json.dumps({name: inner}, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            shown = name.encode("ascii", "backslashreplace").decode("ascii")
            hint = "send valid Unicode text"
            raise InvalidRequestError(f"{shown} holds a lone surrogate", hint=hint, param=shown) from error


def _many() -> InvalidRequestError:
    message = f"the body holds more than {MAX_VALUES} values, or {MAX_PARTS} strings, lists and objects"
    return InvalidRequestError(message, hint="send several requests")


def _deep() -> InvalidRequestError:
    return InvalidRequestError(f"lists and objects nest more than {MAX_DEPTH} deep", hint="send flatter values")


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error).partition(";")[0]


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a list"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case _:
            return "a number"
