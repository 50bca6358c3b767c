"""What was measured of an executor, and the predictions that follow from it: plain numbers, no clock.

One call costs a constant for being a call, then for each layer a part that grows with the rows and a part that grows
with rows times context; the head costs by its rows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from offramp.engine.contention import QUIET_LOAD


@dataclass(frozen=True, slots=True)
class Curve:
    """A function of the number of rows that never falls, given at some numbers of rows and linear between them."""

    points: tuple[tuple[int, float], ...]  # rows strictly rising, values >= 0 and never falling

    def __post_init__(self) -> None:
        rows = [row for row, _ in self.points]
        values = [value for _, value in self.points]
        if not rows or rows[0] < 1 or any(low >= high for low, high in pairwise(rows)):
            raise ValueError(f"row counts don't rise: {rows}")
        if not all(math.isfinite(value) and value >= 0 for value in values) or values != sorted(values):
            raise ValueError(f"values fall: {values}")

    @classmethod
    def fit(cls, measured: Iterable[tuple[int, float]]) -> Curve:
        """The rising curve closest to noisy values (least squares: neighbours in the wrong order get their mean)."""
        blocks: list[tuple[list[int], float]] = []  # row counts, and the mean of their values
        for rows, value in sorted(measured):
            block, mean = [rows], max(0.0, value)
            while blocks and blocks[-1][1] > mean:
                before, mean_before = blocks.pop()
                mean = (mean_before * len(before) + mean * len(block)) / (len(before) + len(block))
                block = before + block
            blocks.append((block, mean))
        return cls(tuple((rows, mean) for block, mean in blocks for rows in block))

    @property
    def most_rows(self) -> int:
        """The largest number of rows measured."""
        return self.points[-1][0]

    def at(self, num_rows: int) -> float:
        """The value at a number of rows; beyond the last point it goes on with the slope of the upper half."""
        if num_rows <= 0:
            return 0.0
        index = bisect_right(self.points, num_rows, key=lambda point: point[0])
        if index == 0:
            return self.points[0][1]
        low, low_value = self.points[index - 1]
        if index < len(self.points):
            high, high_value = self.points[index]
            return low_value + (high_value - low_value) * (num_rows - low) / (high - low)
        return low_value + self._slope * (num_rows - low)

    @property
    def _slope(self) -> float:
        last, last_value = self.points[-1]
        if len(self.points) == 1:
            return last_value / last
        middle, middle_value = self.points[(len(self.points) - 1) // 2]
        return (last_value - middle_value) / (last - middle)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Seconds of one executor. `layers` is all its layers in one call, without `call`, at `context` tokens."""

    num_layers: int
    context: int  # short: attention costs next to nothing there
    call: float  # of running layers at all, however many
    layers: Curve
    per_token: Curve  # more, for each token of context beyond `context`, all layers
    head: Curve
    load: float = 0.0  # of others while this was measured, as `contention.load_between` has it

    def __post_init__(self) -> None:
        if self.num_layers < 1 or self.context < 0 or not (math.isfinite(self.call) and self.call >= 0):
            raise ValueError(f"{self.num_layers} layers, context {self.context}, {self.call} s a call")
        if not (math.isfinite(self.load) and self.load >= 0):
            raise ValueError(f"load {self.load}")

    @property
    def contended(self) -> bool:
        """Others kept the machine busy while this was measured: neither size nor shape can be relied on."""
        return self.load > QUIET_LOAD

    def outdone_at(self, load: float) -> bool:
        """A measurement at this load of others would be clearly better, or as good as any."""
        return load <= max(QUIET_LOAD, self.load / 2)

    @property
    def most_rows(self) -> int:
        """Predictions for more rows than this are extrapolated."""
        return self.layers.most_rows

    def seconds(self, num_rows: int, num_layers: int, context: int, num_head_rows: int) -> float:
        """One call through layers and head."""
        head = self.head.at(num_head_rows)
        if num_layers == 0 or num_rows == 0:
            return head
        longer = max(0, context - self.context)
        whole = self.layers.at(num_rows) + longer * self.per_token.at(num_rows)
        return self.call + whole * num_layers / self.num_layers + head
