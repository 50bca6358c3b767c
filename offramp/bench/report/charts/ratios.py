"""Ratios to plain decoding as bars from the line at 1, with whiskers: a row a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.bench.report.charts.drawing import (
    PANEL_WIDTH,
    Scale,
    bar,
    drawing,
    inner_ticks,
    line,
    mark,
    text,
    whisker_across,
)
from offramp.bench.report.figures import MISSING, ratio, with_span
from offramp.bench.report.html import Html, cut, element, joined
from offramp.bench.report.shapes import shape_of
from offramp.bench.results.cells import Interval

ROW = 24
NAME, LEFT, RIGHT = 20, 126, 44
TOP, BOTTOM = 6, 24
NAME_LETTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is compared; without a ratio, `why` says what is missing."""

    name: str
    exactness: str | None  # None for what promises nothing of the kind: another engine
    ratio: Interval | None
    why: str = "not measured"


def ratio_scale(rows: Sequence[Row]) -> Scale:
    """One for all panels that are compared."""
    return Scale(*ratio_reach([row.ratio for row in rows if row.ratio is not None]), LEFT, PANEL_WIDTH - RIGHT)


def ratio_reach(ratios: Sequence[Interval]) -> tuple[float, float]:
    """From below the lowest to above the highest, with 1; no interval stretches it beyond twice the largest figure."""
    most = 2 * max((each.value for each in ratios), default=1.0)
    ends = [end for each in ratios for end in (each.low, each.value, min(each.high, most))]
    return max(0.0, min([0.9, *ends]) - 0.02), max([1.1, *ends]) + 0.02


def ratio_panel(rows: Sequence[Row], scale: Scale, title: str) -> Html:
    """One chart of bars."""
    height = TOP + ROW * len(rows) + BOTTOM
    bottom = height - BOTTOM
    marks = inner_ticks(scale.low, scale.high, 5)
    grid = [line(scale.at(tick), TOP, scale.at(tick), bottom, "grid") for tick in marks]
    grid += [text(scale.at(tick), bottom + 16, f"{tick:g}", anchor="middle", class_="soft") for tick in marks]
    bars = [_row(row, scale, TOP + ROW * (number + 0.5)) for number, row in enumerate(rows)]
    one = line(scale.at(1), TOP, scale.at(1), bottom, "one")
    return drawing(PANEL_WIDTH, height, title, "; ".join(map(_told, rows)), [*grid, *bars, one])


def _row(row: Row, scale: Scale, y: float) -> Html:
    parts = [] if row.exactness is None else [mark(shape_of(row.exactness), 8, y, tip=row.exactness)]
    parts.append(element("g", element("title", _told(row)), text(NAME, y + 4, cut(row.name, NAME_LETTERS))))
    end = PANEL_WIDTH - 2
    if row.ratio is None:
        return joined(*parts, text(end, y + 4, MISSING, anchor="end", class_="soft"))
    slower = " slower" if row.ratio.value < 1 else ""
    parts.append(bar(scale.at(1), y - 6, scale.at(row.ratio.value), y + 6, f"bar{slower}", _told(row)))
    parts.append(whisker_across(scale, row.ratio.low, row.ratio.high, y))
    return joined(*parts, text(end, y + 4, ratio(row.ratio.value), anchor="end", class_="figure"))


def _told(row: Row) -> str:
    promise = f" ({row.exactness})" if row.exactness is not None else ""
    return f"{row.name}{promise}: {row.why if row.ratio is None else with_span(row.ratio, ratio)}"
