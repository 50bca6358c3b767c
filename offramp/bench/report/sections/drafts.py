"""Acceptance by position of methods that draft."""

from __future__ import annotations

from offramp.bench.report.charts.columns import Column, columns
from offramp.bench.report.figures import figure, share
from offramp.bench.report.given import Part
from offramp.bench.report.html import Html, element, joined
from offramp.bench.report.sections.pieces import block, method_mark, panel, panels
from offramp.bench.results.cells import Cell

MOST_POSITIONS = 24


def acceptance(part: Part) -> list[Html]:
    """A panel a method."""
    drafting = [cell for cell in part.dynamic() if cell.accepted_per_pos]
    if not drafting:
        return []
    note = (
        "Of the drafts that reached a position, the share that was accepted there. Position 1 is the draft's first "
        "token."
    )
    return [block("Acceptance by position", note, panels([_panel(cell) for cell in drafting]))]


def _panel(cell: Cell) -> Html:
    bars = [
        Column(str(number), rate, f"position {number}: {share(rate)} accepted")
        for number, rate in enumerate(cell.accepted_per_pos[:MOST_POSITIONS], start=1)
    ]
    title = f"{cell.method}: drafts accepted, by position"
    chart = columns(bars, title=title, x_label="position in the draft", whole=True)
    told = [f"{share(cell.acceptance_rate)} of all drafted tokens"] if cell.acceptance_rate is not None else []
    if cell.acceptance_length is not None:
        told.append(f"{figure(cell.acceptance_length)} tokens a drafted step")
    left = len(cell.accepted_per_pos) - len(bars)
    told += [f"{left} further positions are not shown"] if left > 0 else []
    below = element("p", "; ".join(told), class_="note")
    return panel(cell.method, joined(chart, below), note=cell.exactness, mark=method_mark(cell.method, cell.exactness))
