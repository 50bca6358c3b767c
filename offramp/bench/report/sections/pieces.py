"""What several sections are made of: headed blocks, panels beside each other, tables, missing figures."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.bench.report.charts.drawing import glyph
from offramp.bench.report.figures import MISSING
from offramp.bench.report.html import Html, cut, element, joined
from offramp.bench.report.shapes import shape_for

NAME_LETTERS = 60


def block(title: str, note: str, *content: str) -> Html:
    """A section with a heading and a sentence that says how to read it."""
    return element("section", element("h4", title), element("p", note, class_="note"), *content, class_="block")


def panels(charts: Sequence[Html]) -> Html:
    """Charts beside each other, as many as have room."""
    return element("div", *charts, class_="panels")


def panel(title: str, chart: str, *, note: str = "", mark: str = "") -> Html:
    """A chart with a caption above it; `mark` is put before the title."""
    told = [element("span", note, class_="note")] if note else []
    return element("figure", element("figcaption", mark, element("b", cut(title, NAME_LETTERS)), *told), chart)


def method_mark(method: str, exactness: str) -> Html:
    """The shape of what a method promises."""
    return glyph(shape_for(method, exactness))


def missing(why: str) -> Html:
    """In the place of a figure; pointing at it tells why there is none."""
    return element("abbr", MISSING, title=why, class_="missing")


def cell(shown: str, value: float | None = None, *, below: str = "") -> Html:
    """A cell of a table. `value` is what sorting goes by, of a number; `below` is set small."""
    small = [element("small", below)] if below else []
    if value is None:
        return element("td", shown, *small, class_="word")
    return element("td", shown, *small, data_value=f"{value:.9g}")


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[Html]], *, words: Sequence[str] = (), class_: str = ""
) -> Html:
    """A table that scrolls by itself where it is wider than the page. The first of each row is its heading.

    `words` are those of `head` below which words stand, not numbers.
    """
    heads = element(
        "tr", *(element("th", name, scope="col", class_="word" if name in words else None) for name in head)
    )
    body = [element("tr", *row) for row in rows]
    whole = element(
        "table", element("caption", caption, class_="unseen"), element("thead", heads), element("tbody", *body)
    )
    return element("div", whole, class_=f"scroll {class_}".strip(), tabindex=0, role="region", aria_label=caption)


def heading(shown: str, mark: str = "") -> Html:
    """The first cell of a row."""
    return element("th", mark, joined(shown), scope="row")
