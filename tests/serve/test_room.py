"""Which models make room."""

from __future__ import annotations

import pytest

from offramp.serve.room import Idle, to_unload

IDLE = [Idle("b", 10, 2.0), Idle("a", 5, 1.0), Idle("c", 20, 3.0)]


@pytest.mark.parametrize(
    ("missing", "leaving"),
    [
        (0, []),
        (-3, []),
        (1, ["a"]),
        (5, ["a"]),
        (6, ["a", "b"]),
        (15, ["a", "b"]),
        (16, ["a", "b", "c"]),
        (35, ["a", "b", "c"]),
        (36, None),
    ],
)
def test_who_was_not_asked_for_longest_leaves_first(missing: int, leaving: list[str] | None) -> None:
    assert to_unload(missing, IDLE) == leaving


def test_where_nobody_is_idle_nobody_leaves() -> None:
    assert to_unload(1, []) is None
