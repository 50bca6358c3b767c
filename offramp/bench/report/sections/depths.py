"""How deep tokens went: a histogram a method."""

from __future__ import annotations

from offramp.bench.report.charts.columns import Column, columns
from offramp.bench.report.figures import counted, figure, share
from offramp.bench.report.given import Part
from offramp.bench.report.html import Html, element, joined
from offramp.bench.report.sections.pieces import block, method_mark, panel, panels
from offramp.bench.results.cells import Cell


def depths(part: Part) -> list[Html]:
    """Only of methods with exits."""
    leaving = [cell for cell in part.dynamic() if sum(cell.exit_counts.values()) > 0]
    if not leaving:
        return []
    note = "The share of generated tokens that took so many layers; the last bar is the deepest."
    return [block("Layers run for a token", note, panels([_panel(cell) for cell in leaving]))]


def _panel(cell: Cell) -> Html:
    total = sum(cell.exit_counts.values())
    bars = [
        Column(str(layers), count / total, f"{layers} layers: {counted(count, 'token')}, {share(count / total)}")
        for layers, count in sorted(cell.exit_counts.items())
    ]
    chart = columns(bars, title=f"{cell.method}: tokens by layers run", x_label="layers run", whole=False)
    told = "" if cell.mean_exit_layer is None else f"{figure(cell.mean_exit_layer)} layers a token on average"
    below = element("p", told, class_="note")
    return panel(cell.method, joined(chart, below), note=cell.exactness, mark=method_mark(cell.method, cell.exactness))
