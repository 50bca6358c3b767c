"""Who is next: the most urgent priority first, and within it clients take turns. Plain bookkeeping."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

Line = OrderedDict[T, None]  # what one client waits for, first come first
Turns = OrderedDict[str, "Line[T]"]  # by client, the next to be served first


class FairQueue(Generic[T]):
    """Items wait under a priority (smaller goes first) and a client. A client's own items keep their order."""

    def __init__(self) -> None:
        self._turns: dict[int, Turns[T]] = {}  # by priority; nothing empty is kept
        self._places: dict[T, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        """All items, in no promised order."""
        return iter(self._places)

    def __contains__(self, item: T) -> bool:
        return item in self._places

    def put(self, item: T, *, priority: int, client: str) -> None:
        """At the end of its client's line; a client that had none is the last to have its turn."""
        assert item not in self._places
        self._places[item] = priority, client
        self._turns.setdefault(priority, OrderedDict()).setdefault(client, OrderedDict())[item] = None

    def first(self) -> T:
        """The item that `take` would take."""
        turns = self._turns[min(self._turns)]
        line = next(iter(turns.values()))
        return next(iter(line))

    def take(self) -> T:
        """Remove and return the first item; its client goes behind the others."""
        item = self.first()
        priority, client = self._places[item]
        self._turns[priority].move_to_end(client)
        self.remove(item)
        return item

    def remove(self, item: T) -> None:
        priority, client = self._places.pop(item)
        turns = self._turns[priority]
        del turns[client][item]
        if not turns[client]:
            del turns[client]
        if not turns:
            del self._turns[priority]
