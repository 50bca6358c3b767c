"""Shares as upright bars: acceptance by position, tokens by layers run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.bench.report.charts.drawing import PANEL_WIDTH, Scale, bar, drawing, line, text, ticks
from offramp.bench.report.figures import share
from offramp.bench.report.html import Html

HEIGHT = 170
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 22, 38
WRITTEN_UP_TO = 9
"""So many bars have their figures above them; of more, pointers and the table tell."""


@dataclass(frozen=True, slots=True)
class Column:
    """A bar: what stands below it, its share, and what it is in words."""

    name: str
    share: float
    tip: str


def columns(bars: Sequence[Column], *, title: str, x_label: str, whole: bool) -> Html:
    """One chart; `whole` lets the axis go up to 100 % whatever the bars."""
    top = 1.0 if whole else max([column.share for column in bars] + [0.01])
    marks = ticks(0.0, top, 4)
    scale = Scale(0.0, marks[-1], HEIGHT - BOTTOM, TOP)
    step = (PANEL_WIDTH - LEFT - RIGHT) / max(1, len(bars))
    parts = [line(LEFT, scale.at(tick), PANEL_WIDTH - RIGHT, scale.at(tick), "grid") for tick in marks]
    parts += [text(LEFT - 6, scale.at(tick) + 4, f"{100 * tick:g} %", anchor="end", class_="soft") for tick in marks]
    every = -(-len(bars) // 12)
    for number, column in enumerate(bars):
        middle = LEFT + step * (number + 0.5)
        half = min(14.0, 0.38 * step)
        parts.append(bar(middle - half, scale.at(0), middle + half, scale.at(column.share), "bar", column.tip))
        if len(bars) <= WRITTEN_UP_TO:
            parts.append(
                text(middle, scale.at(column.share) - 5, share(column.share), anchor="middle", class_="figure")
            )
        if number % every == 0:
            parts.append(text(middle, HEIGHT - BOTTOM + 16, column.name, anchor="middle"))
    parts.append(text(PANEL_WIDTH - RIGHT, HEIGHT - 4, x_label, anchor="end", class_="axis"))
    return drawing(PANEL_WIDTH, HEIGHT, title, "; ".join(column.tip for column in bars), parts)
