"""Figures of `offramp bench run` as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from offramp.bench.report.figures import share
from offramp.bench.results.cells import ALL, Cell, Interval
from offramp.cli.messages import counted, say

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"
WIDTH = 120
"""Of lines that go to no terminal."""

Columns = Mapping[str, Callable[[Cell], str]]

SPEED: Columns = {
    "tokens/s": lambda cell: f"{cell.decode_rate.value:.1f}",
    "x plain": lambda cell: _ratio(cell.decode_ratio),
    "whole": lambda cell: _ratio(cell.total_ratio),
    "first ms": lambda cell: f"{cell.first_ms.value:.0f}",
    "MiB": lambda cell: NONE if cell.peak_bytes is None else f"{cell.peak_bytes / 2**20:.0f}",
    "accepted": lambda cell: _share(cell.acceptance_rate),
    "layers": lambda cell: NONE if cell.mean_exit_layer is None else f"{cell.mean_exit_layer:.1f}",
}
TEXT: Columns = {
    "promise": lambda cell: cell.promise,
    "equal": lambda cell: _share(cell.equal_share),
}
"""Before one for each metric."""


def print_cells(cells: Sequence[Cell]) -> None:
    """Two tables on stderr for each workload and number of streams, all tasks together: speed, and the texts."""
    from rich.console import Console

    terminal = sys.stderr is not None and sys.stderr.isatty()
    console = Console(stderr=True, width=None if terminal else WIDTH)
    for (workload, streams), rows in _groups(cells).items():
        metrics = list(dict.fromkeys(metric for cell in rows for metric in cell.quality))
        judged: Columns = {metric: _quality_of(metric) for metric in metrics}
        title = f"{workload}, {counted(streams, 'stream')}"
        with console.capture() as drawn:
            console.print(_table(f"{title}: speed", rows, SPEED))
            console.print(_table(f"{title}: texts", rows, {**TEXT, **judged}))
        say("\n".join(line.rstrip() for line in drawn.get().rstrip().splitlines()))


def _table(title: str, rows: Sequence[Cell], columns: Columns) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text  # names may hold what would be markup

    table = Table(title=Text(title, "table.title"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for name in columns:
        table.add_column(Text(name), justify="left" if name == "promise" else "right")
    for cell in rows:
        table.add_row(*(Text(text) for text in (cell.method, *(read(cell) for read in columns.values()))))
    return table


def _quality_of(metric: str) -> Callable[[Cell], str]:
    """A metric's mean, and behind it what changed against plain decoding, where anything did."""

    def read(cell: Cell) -> str:
        quality, change = cell.quality.get(metric), cell.quality_change.get(metric)
        if quality is None:
            return NONE
        changed = "" if change is None or change == Interval(0.0, 0.0, 0.0) else f" ({change.value:+.3f})"
        return f"{quality.value:.3f}{changed}"

    return read


def _groups(cells: Iterable[Cell]) -> dict[tuple[str, int], list[Cell]]:
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        if cell.task == ALL:
            groups.setdefault((cell.workload, cell.streams), []).append(cell)
    return groups


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    if interval.is_point:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} ({interval.low:.2f}-{interval.high:.2f})"


def _share(value: float | None) -> str:
    return NONE if value is None else share(value)
