"""How deep lists and objects of JSON lie in each other. What is read level by level can't exhaust Python's stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping

MOST_LEVELS = 64
"""Of what users and programs write; more is a mistake, or made to do harm."""


def is_too_deep(value: object, most: int = MOST_LEVELS) -> bool:
    """Whether a value of JSON has more levels of lists and objects than that."""
    level = [value]
    for _ in range(most + 1):
        level = [inner for each in level if isinstance(each, Mapping | list) for inner in _within(each)]
        if not level:
            return False
    return True


def _within(value: Mapping[object, object] | list[object]) -> Collection[object]:
    return value if isinstance(value, list) else value.values()
