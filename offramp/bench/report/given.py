"""What is shown: a run's lines and cells, and one workload of it at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offramp.bench.results.cells import ALL, Cell
from offramp.bench.results.lines import PLAIN, CostLine, FailureLine, ItemLine, Line, RunLine

MOST_METHODS = 24
MOST_TASKS = 24
MOST_STREAMS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One file of results. `lines` begin with `run`."""

    name: str
    run: RunLine
    lines: Sequence[Line]
    cells: Sequence[Cell]

    @property
    def items(self) -> list[ItemLine]:
        return [line for line in self.lines if isinstance(line, ItemLine)]

    @property
    def failures(self) -> list[FailureLine]:
        return [line for line in self.lines if isinstance(line, FailureLine)]

    @property
    def costs(self) -> list[CostLine]:
        return [line for line in self.lines if isinstance(line, CostLine)]

    @property
    def parts(self) -> list[Part]:
        """Its workloads, those without a single cell left out."""
        names = _once([*self.run.workloads, *(cell.workload for cell in self.cells)])
        parts = [_part(self, name, [cell for cell in self.cells if cell.workload == name]) for name in names]
        return [part for part in parts if part.cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One workload: its cells within bounds, and how much of it is not shown."""

    workload: str
    cells: Sequence[Cell]
    methods: Sequence[str]  # plain decoding first
    tasks: Sequence[str]  # without ALL
    streams: Sequence[int]  # ascending
    num_hidden_methods: int
    num_hidden_tasks: int
    num_hidden_streams: int

    def cell(self, method: str, *, task: str = ALL, streams: int | None = None) -> Cell | None:
        """Of the fewest streams unless they are named; None where it was not measured."""
        wanted = (method, task, self.streams[0] if streams is None else streams)
        return next((cell for cell in self.cells if (cell.method, cell.task, cell.streams) == wanted), None)

    def dynamic(self, *, task: str = ALL, streams: int | None = None) -> list[Cell]:
        """A cell for each method but plain decoding, at the fewest streams unless they are named."""
        found = (self.cell(method, task=task, streams=streams) for method in self.methods if method != PLAIN)
        return [cell for cell in found if cell is not None]

    @property
    def metrics(self) -> list[str]:
        """By which answers were judged."""
        return _once(metric for cell in self.cells for metric in (*cell.quality, *cell.plain_quality))


def _part(given: Given, workload: str, cells: Sequence[Cell]) -> Part:
    methods = _once([*given.run.methods, *(cell.method for cell in cells)])
    methods = [name for name in methods if any(cell.method == name for cell in cells)]
    methods.sort(key=lambda name: name != PLAIN)
    told = given.run.workloads.get(workload, {}).get("tasks", ())
    listed = [str(task) for task in told] if isinstance(told, Iterable) else []
    tasks = [task for task in _once([*listed, *(cell.task for cell in cells)]) if task != ALL]
    streams = sorted({cell.streams for cell in cells})
    kept = (methods[:MOST_METHODS], tasks[:MOST_TASKS], streams[:MOST_STREAMS])
    return Part(
        workload=workload,
        cells=[
            cell
            for cell in cells
            if cell.method in kept[0] and cell.task in (ALL, *kept[1]) and cell.streams in kept[2]
        ],
        methods=kept[0],
        tasks=kept[1],
        streams=kept[2],
        num_hidden_methods=len(methods) - len(kept[0]),
        num_hidden_tasks=len(tasks) - len(kept[1]),
        num_hidden_streams=len(streams) - len(kept[2]),
    )


def _once(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of its first."""
    return list(dict.fromkeys(names))
