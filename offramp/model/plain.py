"""Frozen dataclasses <-> plain JSON values, strictly: what is read back equals what was written, or is refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

KIND = "kind"  # the key that holds a dataclass's name

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """JSON values: a dataclass is an object of its fields and its name, a tuple is a list."""
    if is_dataclass(value) and not isinstance(value, type):
        return {KIND: type(value).__name__} | {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    assert value is None or isinstance(value, bool | int | float | str), f"{value!r} has no plain form"
    return value


def from_plain(kind: type[T], value: object) -> T:
    """The dataclass that `to_plain` made this of. Raises ValueError naming what is wrong."""
    made = _read(kind, value, kind.__name__)
    assert isinstance(made, kind)
    return made


def _read(kind: Any, value: object, where: str) -> object:
    """A value of the annotated type `kind`."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _read(_option(get_args(kind), value), value, where)
    if origin is tuple:
        item, _ = get_args(kind)
        if isinstance(value, list):
            return tuple(_read(item, one, f"{where}[{i}]") for i, one in enumerate(value))
    elif origin is Literal:
        if value in get_args(kind):
            return value
    elif is_dataclass(kind):
        return _read_fields(kind, value, where)
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r:.60}")


def _read_fields(kind: Any, value: object, where: str) -> object:
    types = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    if not isinstance(value, dict) or value.keys() != {KIND, *names} or value[KIND] != kind.__name__:
        raise ValueError(f"{where} is not a {kind.__name__} of {', '.join(names)}")
    return kind(**{name: _read(types[name], value[name], f"{where}.{name}") for name in names})


def _option(options: tuple[type, ...], value: object) -> type:
    """Which type of a union a plain value is of; the first, if of none, which then refuses it."""
    kind: Any = value.get(KIND) if isinstance(value, dict) else type(value).__name__
    found = {option.__name__: option for option in options}
    return found.get(kind) or (float if kind == "int" and float in options else options[0])
