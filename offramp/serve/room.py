"""Which models leave memory for another one. Plain ints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Idle(Generic[T]):
    """A model in memory that nobody uses."""

    model: T
    num_bytes: int
    last_asked: float  # when a request last named it


def to_unload(missing: int, idle: Iterable[Idle[T]]) -> list[T] | None:
    """The models to unload for so many bytes more, those that were not asked for longest first; None: not enough."""
    chosen: list[T] = []
    for each in sorted(idle, key=lambda each: each.last_asked):
        if missing <= 0:
            break
        chosen.append(each.model)
        missing -= each.num_bytes
    return chosen if missing <= 0 else None
