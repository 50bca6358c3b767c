"""Speed against quality: a point a method, with both intervals and its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offramp.bench.report.charts.drawing import (
    Scale,
    drawing,
    inner_ticks,
    line,
    mark,
    text,
    whisker_across,
    whisker_up,
)
from offramp.bench.report.charts.labels import Box, place_labels
from offramp.bench.report.charts.ratios import ratio_reach
from offramp.bench.report.figures import ratio, with_span
from offramp.bench.report.html import Html, cut, element, joined
from offramp.bench.report.shapes import shape_of
from offramp.bench.results.cells import Interval

WIDE, NARROW = (720, 380), (340, 340)
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 46
NAME_LETTERS = 22
LEAST = 0.01
"""Room above and below where all are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A method: its speed and its quality, each as a figure with an interval."""

    name: str
    exactness: str
    speed: Interval
    quality: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What the y axis shows: its name, plain decoding's, how it is written, and whether less of it is better."""

    name: str
    plain: float
    write: Callable[[float], str]
    less_is_better: bool = False


def tradeoff(points: Sequence[Point], quality: Quality, title: str) -> Html:
    """The chart twice, for wide and for narrow windows; better is always upwards."""
    sizes = (("wide", WIDE), ("narrow", NARROW))
    return joined(*(element("div", _chart(points, quality, title, size), class_=name) for name, size in sizes))


def _chart(points: Sequence[Point], quality: Quality, title: str, size: tuple[int, int]) -> Html:
    width, height = size
    right, bottom = width - RIGHT, height - BOTTOM
    across = Scale(*ratio_reach([point.speed for point in points]), LEFT, right)
    low, high = _reach([quality.plain, *_ends([point.quality for point in points])])
    up = Scale(low, high, *((TOP, bottom) if quality.less_is_better else (bottom, TOP)))
    grid = []
    for tick in inner_ticks(low, high, 5):
        grid.append(line(LEFT, up.at(tick), right, up.at(tick), "grid"))
        grid.append(text(LEFT - 8, up.at(tick) + 4, quality.write(tick), anchor="end", class_="soft"))
    marks = inner_ticks(across.low, across.high, 6 if size == WIDE else 4)
    grid += [text(across.at(tick), bottom + 18, f"{tick:g}", anchor="middle", class_="soft") for tick in marks]
    axes = [
        line(across.at(1), TOP, across.at(1), bottom, "one"),
        line(LEFT, up.at(quality.plain), right, up.at(quality.plain), "one"),
        text(LEFT, 14, f"↑ {quality.name}", class_="axis"),
        text(right, height - 6, "decoding speed, times plain →", anchor="end", class_="axis"),
    ]
    description = "; ".join(_told(point, quality) for point in points)
    frame = Box(LEFT, TOP - 12, width - 2, bottom)
    return drawing(
        width, height, title, description, [*grid, *axes, *_marks(points, across, up, frame, quality)], "hero"
    )


def _marks(points: Sequence[Point], across: Scale, up: Scale, frame: Box, quality: Quality) -> list[Html]:
    """Whiskers below, then leaders, marks, and names on top."""
    places = [(across.at(point.speed.value), up.at(point.quality.value)) for point in points]
    taken, whiskers, marks = [], [], []
    for point, (x, y) in zip(points, places, strict=True):
        whiskers.append(whisker_across(across, point.speed.low, point.speed.high, y))
        taken.append(Box(across.at(point.speed.low), y - 3, across.at(point.speed.high), y + 3))
        if point.quality.low < point.quality.high:
            whiskers.append(whisker_up(up, point.quality.low, point.quality.high, x))
            top, bottom = sorted((up.at(point.quality.high), up.at(point.quality.low)))
            taken.append(Box(x - 3, top, x + 3, bottom))
        marks.append(mark(shape_of(point.exactness), x, y, radius=6, tip=_told(point, quality)))
    labels = place_labels(places, [cut(point.name, NAME_LETTERS) for point in points], taken, frame)
    leaders = [
        line(x, y, label.x, label.y + (3 if label.y < y else -10), "leader")
        for label, (x, y) in zip(labels, places, strict=True)
        if label.far
    ]
    names = [text(label.x, label.y, label.text, anchor="middle", class_="name") for label in labels]
    return [*leaders, *whiskers, *marks, *names]


def _told(point: Point, quality: Quality) -> str:
    told = f"{with_span(point.speed, ratio)} times plain, {quality.name} {with_span(point.quality, quality.write)}"
    return f"{point.name} ({point.exactness}): {told}"


def _ends(intervals: Sequence[Interval]) -> list[float]:
    """Of all intervals; none may stretch the chart beyond twice its largest figure."""
    most = 2 * max((abs(each.value) for each in intervals), default=0.0) + 2 * LEAST
    ends = [end for each in intervals for end in (each.low, each.value, each.high)]
    return [max(-most, min(most, end)) for end in ends]


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """From a little below the lowest to a little above the highest."""
    low, high = min(values), max(values)
    room = max(0.1 * (high - low), LEAST)
    return low - room, high + room
