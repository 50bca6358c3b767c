"""One method's ratio to plain decoding by the number of streams, and its tokens a second."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from offramp.bench.report.charts.drawing import (
    PANEL_WIDTH,
    Scale,
    drawing,
    inner_ticks,
    line,
    mark,
    text,
    whisker_up,
)
from offramp.bench.report.charts.ratios import ratio_reach
from offramp.bench.report.figures import figure, ratio, with_span
from offramp.bench.report.html import Html
from offramp.bench.report.shapes import shape_of
from offramp.bench.results.cells import Cell, Interval

HEIGHT = 190
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 24, 42


def stream_scale(ratios: Sequence[Interval]) -> Scale:
    """One for all methods."""
    return Scale(*ratio_reach(ratios), HEIGHT - BOTTOM, TOP)


def stream_panel(cells: Sequence[Cell], scale: Scale, title: str) -> Html:
    """One chart; the cells are one method's, by rising streams, each with a ratio."""
    known = [(cell, cell.decode_ratio) for cell in cells if cell.decode_ratio is not None]
    step = (PANEL_WIDTH - LEFT - RIGHT) / max(1, len(known))
    marks = inner_ticks(scale.low, scale.high, 4)
    parts = [line(LEFT, scale.at(tick), PANEL_WIDTH - RIGHT, scale.at(tick), "grid") for tick in marks]
    parts += [text(LEFT - 8, scale.at(tick) + 4, f"{tick:g}", anchor="end", class_="soft") for tick in marks]
    parts.append(line(LEFT, scale.at(1), PANEL_WIDTH - RIGHT, scale.at(1), "one"))
    places = [(LEFT + step * (number + 0.5), scale.at(each.value)) for number, (_, each) in enumerate(known)]
    parts += [line(*one, *two, "trend") for one, two in pairwise(places)]
    told = []
    for (cell, each), (x, y) in zip(known, places, strict=True):
        told.append(
            f"{cell.streams} streams: {with_span(each, ratio)} times plain, {figure(cell.decode_rate.value)} tokens/s"
        )
        parts.append(whisker_up(scale, each.low, each.high, x))
        parts.append(mark(shape_of(cell.exactness), x, y, tip=told[-1]))
        parts.append(text(x + 8, y - 6, ratio(each.value), class_="figure"))
        parts.append(text(x, HEIGHT - BOTTOM + 17, str(cell.streams), anchor="middle"))
        parts.append(
            text(x, HEIGHT - BOTTOM + 33, f"{figure(cell.decode_rate.value)}/s", anchor="middle", class_="soft")
        )
    return drawing(PANEL_WIDTH, HEIGHT, title, "; ".join(told), parts)
