"""What a method promises, as a word and as a shape: colour alone says nothing."""

from __future__ import annotations

from offramp.bench.report.charts.drawing import glyph
from offramp.bench.report.html import Html, element
from offramp.bench.results.lines import PLAIN

SHAPES = {"lossless": "circle", "full": "ring", "calibrated": "diamond", "unchecked": "triangle"}
"""By the first word of the labels that runs give."""
OTHER = "square"
MEANINGS = {
    "circle": "lossless: promises plain decoding's answers",
    "ring": "plain decoding, or all layers for every token",
    "diamond": "calibrated: promises a bounded loss",
    "triangle": "unchecked: promises nothing",
    "square": "another promise",
}
EXACT = ("lossless", "full")
"""Labels of methods whose tokens must be plain decoding's, id for id."""


def shape_of(exactness: str) -> str:
    """The shape of its marks."""
    words = exactness.replace(",", " ").split()
    return SHAPES.get(words[0].lower(), OTHER) if words else OTHER


def shape_for(method: str, exactness: str) -> str:
    """The shape of a method's marks: plain decoding has one of its own."""
    return SHAPES["full"] if method == PLAIN else shape_of(exactness)


def is_exact(exactness: str) -> bool:
    """Whether the promise is plain decoding's tokens."""
    return exactness in EXACT


def legend(shapes: list[str]) -> Html:
    """What the shapes mean, those that occur."""
    shown = [shape for shape in MEANINGS if shape in shapes]
    return element("ul", *(element("li", glyph(shape), MEANINGS[shape]) for shape in shown), class_="legend")
