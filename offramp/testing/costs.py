"""Costs that a test writes, so that what pays is known."""

from __future__ import annotations

from collections.abc import Callable

Seconds = Callable[[int], float]
"""Rows of a call -> what it takes."""


class ScriptedCosts:
    """`CostModel` by the number of rows alone, whatever layers and context; counts what it is asked and told."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self.num_asked = 0
        self.num_told = 0

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        self.num_asked += 1
        return self._seconds(num_rows)

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        self.num_told += 1


def each_row(share: float) -> Seconds:
    """The first row of a call takes 1, every further one `share` of that."""
    return lambda num_rows: 1.0 + share * (num_rows - 1)
