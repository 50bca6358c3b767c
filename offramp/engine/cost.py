"""The measured cost model: predictions from a table, corrected by what steps really took."""

from __future__ import annotations

from collections import deque
from statistics import median

from offramp.engine.cost_table import CostTable

WINDOW = 64
"""Latest observations that a correction is the median of: a burst of a neighbour's work does not move it."""
ENOUGH = 16
STALE, FRESH = 1.20, 1.10
"""Reality over prediction, or its inverse: above the first the table is stale, until it is below the second."""


class MeasuredCosts:
    """`CostModel` over a `CostTable`. When `doubtful`, measure again at an idle moment and `replace`.

    Corrections are learned for bands of row counts (1, 2, 3 to 4, 5 to 8, ...): a busy neighbour makes small steps
    dearer than large ones. A band that was not seen yet takes the correction of the nearest that was.
    Without a table it learns nothing and must not be asked: `replace` it first.
    """

    def __init__(self, table: CostTable | None = None) -> None:
        self._table = table
        self._ratios: dict[int, deque[float]] = {}  # reality over prediction, by band
        self._corrections: dict[int, float] = {}  # their medians, where there are enough
        self._stale = False

    @property
    def table(self) -> CostTable | None:
        return self._table

    @property
    def stale(self) -> bool:
        """Reality of some band has disagreed with the table by more than 20 %, and one still does by over 10 %."""
        return self._stale

    @property
    def doubtful(self) -> bool:
        """Stale, or measured while others kept the machine busy: to be measured anew in a quiet moment."""
        return self.stale or (self._table is not None and self._table.contended)

    def correction(self, num_rows: int) -> float:
        """Reality over prediction for so many rows: the median of the latest steps, 1 until there are enough."""
        if not self._corrections:
            return 1.0
        band = _band(num_rows)
        return self._corrections[min(self._corrections, key=lambda known: (abs(known - band), known))]

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        """Corrected prediction for one call; see `CostModel`."""
        head_rows = num_rows if num_head_rows is None else num_head_rows
        seconds = self.correction(num_rows) * self._predict(num_rows, num_layers, context, head_rows)
        for band in self._corrections:  # bands are corrected apart, and yet more rows never cost less
            most = 1 << band
            if most < num_rows:
                fewer = self._predict(most, num_layers, context, max(0, head_rows - (num_rows - most)))
                seconds = max(seconds, self._corrections[band] * fewer)
        return seconds

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        """Learn what a call took. More rows than were measured teach nothing: their prediction is extrapolated."""
        if self._table is None or num_rows > self._table.most_rows:
            return
        predicted = self._predict(num_rows, num_layers, context, num_rows if num_head_rows is None else num_head_rows)
        if predicted <= 0:
            return
        band = _band(num_rows)
        ratios = self._ratios.setdefault(band, deque(maxlen=WINDOW))
        ratios.append(seconds / predicted)
        if len(ratios) >= ENOUGH:
            self._corrections[band] = median(ratios)
            farthest = max(_distance(correction) for correction in self._corrections.values())
            self._stale = farthest > (FRESH if self._stale else STALE)

    def replace(self, table: CostTable) -> None:
        """Start anew from fresh measurements."""
        self._table = table
        self._ratios.clear()
        self._corrections.clear()
        self._stale = False

    def _predict(self, num_rows: int, num_layers: int, context: int, num_head_rows: int) -> float:
        assert self._table is not None, "nothing was measured"
        return self._table.seconds(num_rows, num_layers, context, num_head_rows)


def _band(num_rows: int) -> int:
    """0 for one row, 1 for two, 2 for 3 and 4, 3 for 5 to 8, ...: the band's most rows are 2 to its power."""
    return (num_rows - 1).bit_length()


def _distance(correction: float) -> float:
    return max(correction, 1 / correction) if correction > 0 else STALE + 1
