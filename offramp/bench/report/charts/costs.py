"""The cost model's fit: steps as measured against steps as predicted; on the line they are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from offramp.bench.report.charts.drawing import Scale, drawing, line, mark, text, ticks
from offramp.bench.report.figures import figure
from offramp.bench.report.html import Html
from offramp.bench.results.lines import CostLine

WIDTH, HEIGHT = 340, 330
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 26, 42
WIDE_SPAN = 8
"""From this ratio of largest to smallest on, both axes are logarithmic."""


def cost_fit(costs: Sequence[CostLine]) -> Html:
    """One chart; every time in it is above 0."""
    times = [time for cost in costs for time in (cost.measured_ms, cost.predicted_ms)]
    low, high = min(times), max(times)
    logarithmic = high / low > WIDE_SPAN
    marks = _powers(low, high) if logarithmic else ticks(low, high, 5)
    across = Scale(marks[0], marks[-1], LEFT, WIDTH - RIGHT, logarithmic)
    up = Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP, logarithmic)
    parts = [line(LEFT, up.at(tick), WIDTH - RIGHT, up.at(tick), "grid") for tick in marks]
    parts += [text(LEFT - 6, up.at(tick) + 4, f"{tick:g}", anchor="end", class_="soft") for tick in marks]
    parts += [
        text(across.at(tick), HEIGHT - BOTTOM + 16, f"{tick:g}", anchor="middle", class_="soft") for tick in marks
    ]
    parts.append(line(across.at(marks[0]), up.at(marks[0]), across.at(marks[-1]), up.at(marks[-1]), "one"))
    parts.append(text(LEFT, 12, "↑ predicted, ms", class_="axis"))
    parts.append(text(WIDTH - RIGHT, HEIGHT - 6, "measured, ms →", anchor="end", class_="axis"))
    parts += [mark("circle", across.at(cost.measured_ms), up.at(cost.predicted_ms), tip=_told(cost)) for cost in costs]
    return drawing(WIDTH, HEIGHT, "Steps as measured and as predicted", "; ".join(map(_told, costs)), parts)


def _told(cost: CostLine) -> str:
    rows = f"{cost.rows} row{'' if cost.rows == 1 else 's'} behind {cost.context:,} tokens"
    return f"{rows}: {figure(cost.measured_ms)} ms measured, {figure(cost.predicted_ms)} ms predicted"


def _powers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... around both; powers of ten alone where that would be many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    all_marks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    start = max(number for number, value in enumerate(all_marks) if value <= low * (1 + 1e-9))
    stop = min(number for number, value in enumerate(all_marks) if value >= high * (1 - 1e-9))
    return all_marks[start : max(stop, start + 1) + 1]
