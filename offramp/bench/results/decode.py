"""JSON objects read as the dataclasses that wrote them, strictly: every field, nothing else, each of its type."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from offramp.params import shown

T = TypeVar("T")

MOST_INT, MOST_FLOAT = 2**53, 1e100
"""Far beyond all that is counted, timed or judged, and near enough that sums stay numbers."""


def decoded(kind: type[T], given: object) -> T:
    """An object as a dataclass. Raises ValueError naming the field that is missing, unknown or of another type."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{shown(given)} is no object")
    shape: Any = kind
    types_of = _types(shape)
    unknown = [name for name in given if name not in types_of]
    if unknown:
        raise ValueError(f"there is no field {shown(unknown[0])}")
    missing = [name for name in _required(shape) if name not in given]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return kind(**{name: _value(name, types_of[name], value) for name, value in given.items()})


@cache
def _types(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> tuple[str, ...]:
    unset = (each for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING)
    return tuple(each.name for each in unset)


def _value(name: str, kind: Any, value: object) -> object:
    """A value of that type. Integers pass for floats, lists for tuples, as JSON has them."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is object:
        return value
    if origin in (Union, types.UnionType):
        return _any_of(name, args, value)
    if origin is tuple and isinstance(value, list):
        return _tuple(name, args, value)
    if origin is Sequence and isinstance(value, list):
        return [_value(f"{name}[{place}]", args[0], each) for place, each in enumerate(value)]
    if is_dataclass(kind) and isinstance(kind, type):
        return decoded(kind, value)
    if origin in (Mapping, dict) and isinstance(value, Mapping):
        return {_key(name, args[0], key): _value(f"{name}.{key}", args[1], each) for key, each in value.items()}
    if isinstance(value, int | float) and not -_most(value) <= value <= _most(value):
        raise ValueError(f"{name} is {shown(value)}")
    if kind is float and type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    if origin is None and kind is not float and type(value) is kind:
        return value
    raise ValueError(f"{name} is {shown(value)}")


def _most(value: int | float) -> float:
    return MOST_INT if isinstance(value, int) else MOST_FLOAT


def _any_of(name: str, kinds: tuple[Any, ...], value: object) -> object:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return _value(name, kind, value)
        except ValueError:
            continue
    raise ValueError(f"{name} is {shown(value)}")


def _tuple(name: str, kinds: tuple[Any, ...], values: list[object]) -> tuple[object, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_value(f"{name}[{place}]", kinds[0], value) for place, value in enumerate(values))
    if len(kinds) != len(values):
        raise ValueError(f"{name} is {shown(values)}")
    return tuple(_value(name, kind, value) for kind, value in zip(kinds, values, strict=True))


def _key(name: str, kind: Any, key: object) -> object:
    """JSON's keys are texts."""
    if kind is int and isinstance(key, str) and key.isascii() and key.isdecimal():
        return int(key)
    return _value(name, kind, key)
