"""The methods and filters that chat templates may use: those that real ones do, and that are quick on what they get.

`Budget.before_call` (template_limits.py) knows the ones that could make something larger than they get.
"""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
TEXT_METHODS = frozenset((
    "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdecimal",
    "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper",
))
LIST_METHODS = frozenset(("copy", "count", "index", "grouper", "list"))  # the last two: of the filter groupby
MAPPING_METHODS = frozenset(("copy", "get", "items", "keys", "values"))

METHODS: tuple[tuple[tuple[type, ...], frozenset[str]], ...] = (
    ((str,), TEXT_METHODS),
    ((list, tuple), LIST_METHODS),
    ((Mapping,), MAPPING_METHODS),
    ((int, float, bytes, bytearray, range, set, frozenset), frozenset()),
)
"""The attributes of plain values."""

PICKING = frozenset((
    "count", "d", "default", "dictsort", "first", "items", "last", "length", "list", "max", "min", "reject",
    "rejectattr", "reverse", "select", "selectattr", "sort", "unique",
))
"""Filters whose result holds only what they were given."""

FILTERS = PICKING | frozenset((
    "abs", "capitalize", "e", "escape", "float", "format", "groupby", "indent", "int", "join", "lower", "map",
    "replace", "round", "safe", "string", "sum", "title", "trim", "truncate", "upper",
))
"""Besides tojson, which the environment makes itself."""
# fmt: on
