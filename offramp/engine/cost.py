"""The measured cost model: predictions from a table, corrected by what steps really took."""

from __future__ import annotations

from collections import deque
from statistics import median

from offramp.engine.cost_table import CostTable

WINDOW = 64
"""Latest observations that the correction is the median of: a burst of a neighbour's work does not move it."""
ENOUGH = 16
STALE, FRESH = 1.20, 1.10
"""Reality over prediction, or its inverse: above the first the table is stale, until it is below the second."""


class MeasuredCosts:
    """`CostModel` over a `CostTable`. When `stale`, measure again at an idle moment and `replace` the table.

    Without a table it learns nothing and must not be asked: `replace` it first.
    """

    def __init__(self, table: CostTable | None = None) -> None:
        self._table = table
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._correction = 1.0
        self._stale = False

    @property
    def table(self) -> CostTable | None:
        return self._table

    @property
    def correction(self) -> float:
        """Reality over prediction: the median of the latest steps, 1 until there are enough of them."""
        return self._correction

    @property
    def stale(self) -> bool:
        """Reality has disagreed with the table by more than 20 % and has not come back."""
        return self._stale

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        """Corrected prediction for one call; see `CostModel`."""
        return self._correction * self._predict(num_rows, num_layers, context, num_head_rows)

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        """Learn what a call took. More rows than were measured teach nothing: their prediction is extrapolated."""
        if self._table is None:
            return
        predicted = self._predict(num_rows, num_layers, context, num_head_rows)
        if num_rows > self._table.most_rows or predicted <= 0:
            return
        self._ratios.append(seconds / predicted)
        if len(self._ratios) >= ENOUGH:
            self._correction = median(self._ratios)
            distance = max(self._correction, 1 / self._correction) if self._correction > 0 else STALE + 1
            self._stale = distance > (FRESH if self._stale else STALE)

    def replace(self, table: CostTable) -> None:
        """Start anew from fresh measurements."""
        self._table = table
        self._ratios.clear()
        self._correction, self._stale = 1.0, False

    def _predict(self, num_rows: int, num_layers: int, context: int, num_head_rows: int | None) -> float:
        assert self._table is not None, "nothing was measured"
        return self._table.seconds(num_rows, num_layers, context, num_rows if num_head_rows is None else num_head_rows)
