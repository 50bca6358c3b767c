"""Where labels of points go, so that none covers a point, a whisker or another label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offramp.bench.report.charts.drawing import LETTER

HEIGHT = 14.0
GAP = 9.0
RINGS = 12
"""How far labels may be pushed away, in their heights."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle that is taken."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two share a point."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def inside(self, other: Box) -> bool:
        """Whether the other holds all of it."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


@dataclass(frozen=True, slots=True)
class Label:
    """A text centred at x with its baseline at y; `far` ones need a line to their point."""

    text: str
    x: float
    y: float
    far: bool


def place_labels(
    points: Sequence[tuple[float, float]], texts: Sequence[str], taken: Sequence[Box], frame: Box
) -> list[Label]:
    """A label for each point, the nearest place first; where all is taken, above its point."""
    used = [*taken, *(Box(x - 6, y - 6, x + 6, y + 6) for x, y in points)]
    labels = []
    for (x, y), text in zip(points, texts, strict=True):
        width = LETTER * len(text)
        tried = [(label, _box(label, width)) for label in _candidates(x, y, text, width)]
        free = ((label, box) for label, box in tried if box.inside(frame) and not any(map(box.meets, used)))
        label, box = next(free, tried[0])
        used.append(box)
        labels.append(label)
    return labels


def _candidates(x: float, y: float, text: str, width: float) -> Iterator[Label]:
    for ring in range(RINGS):
        for aside in (0.0, -0.45, 0.45):
            for up in (y - GAP - ring * HEIGHT, y + GAP + 10 + ring * HEIGHT):
                yield Label(text, x + aside * width, up, ring > 0 or aside != 0.0)
        if ring == 0:
            yield Label(text, x + GAP + width / 2, y + 4, False)
            yield Label(text, x - GAP - width / 2, y + 4, False)


def _box(label: Label, width: float) -> Box:
    return Box(label.x - width / 2 - 2, label.y - 11, label.x + width / 2 + 2, label.y + 3)
