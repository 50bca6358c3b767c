"""How deep lists and objects of JSON lie in each other. What is read level by level can't exhaust Python's stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping

MOST_LEVELS = 64
"""Of what users and programs write; more is a mistake, or made to do harm."""


def is_too_deep(value: object, most: int = MOST_LEVELS) -> bool:
    """Whether a value of JSON has more levels of lists and objects than that; one without anything in it counts."""
    level = _lists_and_objects([value])
    for _ in range(most):
        if not level:
            return False
        level = [inner for outer in level for inner in _lists_and_objects(_within(outer))]
    return bool(level)


def _lists_and_objects(values: Collection[object]) -> list[Mapping[object, object] | list[object]]:
    return [each for each in values if isinstance(each, Mapping | list)]


def _within(value: Mapping[object, object] | list[object]) -> Collection[object]:
    return value if isinstance(value, list) else value.values()
