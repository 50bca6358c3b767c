"""Pieces of charts: scales, ticks, texts, marks. Sizes in pixels, y downwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from offramp.bench.report.html import Html, element, joined

PANEL_WIDTH = 340
"""Of charts that lie beside each other; fits a phone."""
LETTER = 6.4
"""Width of a letter at the charts' size, about."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places; what lies outside is put at the edge."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where a value lies."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        """Whether it lies within."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from at most `low` to at least `high`, at most `most` steps."""
    span = high - low
    if not span > 0:
        span = abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if span / (factor * power) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, max(last, first + 1) + 1)]


def inner_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two values."""
    return [tick for tick in ticks(low, high, most) if low <= tick <= high]


def drawing(width: float, height: float, title: str, description: str, parts: Iterable[str], class_: str = "") -> Html:
    """A chart; title and description are for those who don't see it."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        class_=f"chart {class_}".strip(),
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def bar(x1: float, y1: float, x2: float, y2: float, class_: str = "bar", tip: str = "") -> Html:
    """A rectangle between two corners in any order, at least a pixel wide and high, with a tip for pointers."""
    return element(
        "rect",
        *([element("title", tip)] if tip else []),
        x=float(min(x1, x2)),
        y=float(min(y1, y2)),
        width=max(1.0, abs(x2 - x1)),
        height=max(1.0, abs(y2 - y1)),
        rx=1.5,
        class_=class_,
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "") -> Html:
    """A text whose baseline is at y."""
    return element("text", content, x=float(x), y=float(y), text_anchor=anchor, class_=class_ or None)


def mark(shape: str, x: float, y: float, *, radius: float = 5.0, tip: str = "") -> Html:
    """A point: circle, ring, diamond, triangle or square, with a tip for pointers."""
    title = [element("title", tip)] if tip else []
    if shape in ("circle", "ring"):
        return element("circle", *title, cx=float(x), cy=float(y), r=float(radius), class_=f"mark {shape}")
    r = radius * 1.15
    corners = {
        "diamond": ((0, -r * 1.2), (r * 1.2, 0), (0, r * 1.2), (-r * 1.2, 0)),
        "triangle": ((0, -r * 1.1), (r * 1.1, r * 0.8), (-r * 1.1, r * 0.8)),
        "square": ((-r * 0.85, -r * 0.85), (r * 0.85, -r * 0.85), (r * 0.85, r * 0.85), (-r * 0.85, r * 0.85)),
    }[shape]
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return element("polygon", *title, points=places, class_=f"mark {shape}")


def whisker_across(scale: Scale, low: float, high: float, y: float, cap: float = 4.0) -> Html:
    """An interval along x, with caps at ends that lie on the chart."""
    left, right = scale.at(low), scale.at(high)
    ends = [line(x, y - cap, x, y + cap, "whisker") for x, end in ((left, low), (right, high)) if scale.holds(end)]
    return joined(line(left, y, right, y, "whisker"), *ends)


def whisker_up(scale: Scale, low: float, high: float, x: float, cap: float = 4.0) -> Html:
    """An interval along y, with caps at ends that lie on the chart."""
    bottom, top = scale.at(low), scale.at(high)
    ends = [line(x - cap, y, x + cap, y, "whisker") for y, end in ((bottom, low), (top, high)) if scale.holds(end)]
    return joined(line(x, bottom, x, top, "whisker"), *ends)


def glyph(shape: str) -> Html:
    """A shape beside words, which say the same."""
    return element(
        "svg", mark(shape, 7, 7), viewBox="0 0 14 14", width=14, height=14, class_="glyph", aria_hidden="true"
    )
