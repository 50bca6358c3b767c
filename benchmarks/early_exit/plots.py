"""Small charts as SVG text, without a library: lines, and bars by group. Numbers come rounded, so files stay small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 740, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 210, 34, 44
COLORS = ("#3b6fb6", "#d1722d", "#3f9b5f", "#8d5bb0", "#b5443f", "#6b7280")
Points = Sequence[tuple[float, float]]


def line_chart(
    title: str, x_label: str, y_label: str, series: Mapping[str, Points], *, marks_only: bool = False
) -> str:
    """Lines with a mark at each point; without lines, marks alone."""
    points = [point for some in series.values() for point in some]
    frame = _Frame([x for x, _ in points], [y for _, y in points])
    parts = []
    for number, some in enumerate(series.values()):
        color = COLORS[number % len(COLORS)]
        placed = [(frame.x(x), frame.y(y)) for x, y in some]
        if not marks_only and len(placed) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in placed]
    return _svg(title, x_label, y_label, [*frame.grid(), *parts, *_legend(list(series))])


def bar_chart(
    title: str, x_label: str, y_label: str, groups: Sequence[str], series: Mapping[str, Sequence[float]]
) -> str:
    """A bar a group for each of the series, side by side."""
    values = [value for some in series.values() for value in some]
    frame = _Frame([0.0, float(len(groups))], [0.0, *values], named=groups)
    width = 0.8 / max(1, len(series))
    parts = []
    for number, some in enumerate(series.values()):
        for place, value in enumerate(some):
            left, right = frame.x(place + 0.1 + number * width), frame.x(place + 0.1 + (number + 1) * width)
            top, bottom = frame.y(value), frame.y(0)
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left - 1:.1f}" height="{bottom - top:.1f}" '
                f'fill="{COLORS[number % len(COLORS)]}"/>'
            )
    return _svg(title, x_label, y_label, [*frame.grid(), *parts, *_legend(list(series))])


class _Frame:
    """Where values lie on the picture, and the lines behind them."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], named: Sequence[str] = ()) -> None:
        self._named = named
        self._x_ticks = list(range(len(named) + 1)) if named else _ticks(min(xs, default=0), max(xs, default=1))
        self._y_ticks = _ticks(min(ys, default=0), max(ys, default=1))

    def x(self, value: float) -> float:
        low, high = self._x_ticks[0], self._x_ticks[-1]
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y_ticks[0], self._y_ticks[-1]
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        parts = []
        for tick in self._y_ticks:
            y = self.y(tick)
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e2e5ea"/>')
            parts.append(_text(LEFT - 6, y + 4, f"{tick:g}", "end"))
        for place, name in enumerate(self._named):
            parts.append(_text(self.x(place + 0.5), HEIGHT - BOTTOM + 16, name, "middle"))
        ticks = () if self._named else self._x_ticks
        return parts + [_text(self.x(tick), HEIGHT - BOTTOM + 16, f"{tick:g}", "middle") for tick in ticks]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about six of them."""
    span = (high - low) or 1.0
    power = 1.0
    while power * 10 < span:
        power *= 10
    while power >= span:
        power /= 10
    step = next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 6)
    first, last = int(low // step), -int(-high // step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        y = TOP + 8 + 18 * number
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 8}" width="10" height="10" fill="{COLORS[number % len(COLORS)]}"/>'
        )
        parts.append(_text(WIDTH - RIGHT + 30, y + 1, name, "start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _svg(title: str, x_label: str, y_label: str, parts: Sequence[str]) -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    across = HEIGHT / 2
    frame = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" fill="#1f2937"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 20, title, "start", 13),
        _text(middle, HEIGHT - 10, x_label, "middle"),
        f'<g transform="rotate(-90 14 {across:.0f})">{_text(14, across, y_label, "middle")}</g>',
    ]
    return "\n".join([*frame, *parts, "</svg>"]) + "\n"
