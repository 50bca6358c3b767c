"""Time an executor in a given box of seconds, through the `LayerExecutor` protocol alone.

Cells (a number of rows, at short and at long context, and the head) are timed in rounds, small ones first, so that a
busy moment hits every cell a little instead of one cell always; each cell's shortest time counts, as neighbours only
ever make a call longer. A cell whose expected time does not fit any more is left out: a large model gets fewer row
counts, never a longer wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from offramp.core import PAGE_SIZE, Ids
from offramp.engine.contention import Usage, load_between, read_usage
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.probe import Probe, pages_for_rows
from offramp.model.executor import LayerExecutor

Clock = Callable[[], float]
ReadUsage = Callable[[], Usage]

ROW_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LONG_ROW_COUNTS = (1, 4, 16)
"""At the long context: what a token of context costs is nearly proportional to the rows."""
SHORT_CONTEXT = PAGE_SIZE
LONG_CONTEXT = 32 * PAGE_SIZE
BOX_SECONDS = 2.0
MAX_ROUNDS = 7
CONTEXT_SHARE = 0.15
"""Of the box, for writing a long context."""
FIRST_ROUND_SHARE = 0.5
"""Of the box, in which new cells may begin; the rest repeats those that there are."""

LEAST_PAGES = 1 + pages_for_rows(ROW_COUNTS[-1])
PROBE_PAGES = LEAST_PAGES - 1 + LONG_CONTEXT // PAGE_SIZE
"""Pages that a measurement uses when it may; with fewer, the long context is shorter."""

CHECK_ROWS = (1, 4, 8)
"""What a table is checked by: a plain step, and drafts of usual lengths."""
CHECK_SECONDS = 0.08
CHECK_PAGES = pages_for_rows(CHECK_ROWS[-1])
CONTRADICTED = 1.25
"""What a check may be off by, either way; the shortest of a few calls lies within that of the table's."""
NOISE_SECONDS = 5e-4
"""What a call takes more or less by chance, such as waking a thread: no contradiction."""


@dataclass(slots=True, eq=False)
class _Cell:
    """One thing to time."""

    num_rows: int
    run: Callable[[], object]
    before: _Cell | None = None  # the same with fewer rows
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return min(self.times)

    @property
    def expected(self) -> float:
        """Seconds it will take at most: twice the rows, twice the time. The smallest of its kind gets a chance."""
        if self.times:
            return self.seconds
        if self.before is None:
            return 0.0
        return self.before.seconds * self.num_rows / self.before.num_rows if self.before.times else math.inf


@dataclass(frozen=True, slots=True)
class Check:
    """A table against a few calls: the load of others meanwhile, and how many times off the farthest was.

    Dearer or cheaper; 1 within the noise.
    """

    off: float
    load: float


def measure_costs(
    executor: LayerExecutor,
    pages: Ids,
    *,
    box_seconds: float = BOX_SECONDS,
    clock: Clock = time.perf_counter,
    usage: ReadUsage = read_usage,
) -> CostTable:
    """Costs of an executor, in about `box_seconds`; one row is timed however long it takes.

    Overwrites the K/V of `pages`, which nobody may use meanwhile, and no other; `LEAST_PAGES` of them or more.
    """
    assert len(pages) >= LEAST_PAGES, "too few pages"
    begin = clock()
    probe = _written_probe(executor, pages, box_seconds * CONTEXT_SHARE, clock)
    context, least = probe.context, min(SHORT_CONTEXT, probe.context)
    before = usage()
    short = _series(ROW_COUNTS, lambda count: _layers_call(executor, probe, count, least))
    long = _series(LONG_ROW_COUNTS, lambda count: _layers_call(executor, probe, count, context))
    head = _series(ROW_COUNTS, lambda count: _head_call(executor, probe, count))
    single = _Cell(1, _single_layers_call(executor, probe, least))
    _time(short[0], clock)
    _time(head[0], clock)
    cells = sorted([*short, *head, single, *(long if context > least else ())], key=lambda cell: cell.num_rows)
    _first_round(cells, begin + box_seconds * FIRST_ROUND_SHARE, clock)
    _more_rounds(cells, begin + box_seconds, clock)
    table = _table(executor.config.num_layers, least, context, short, long, head, single)
    return replace(table, load=load_between(before, usage()))


def check_costs(
    executor: LayerExecutor,
    pages: Ids,
    table: CostTable,
    *,
    box_seconds: float = CHECK_SECONDS,
    clock: Clock = time.perf_counter,
    usage: ReadUsage = read_usage,
) -> Check:
    """Time a few steps of few rows to see whether a table is right.

    Takes `box_seconds`, after a step that fetches the weights. What can't be timed twice in it is not judged: a model
    too slow for the box is judged by its steps alone. Overwrites the K/V of `pages`, `CHECK_PAGES` of them or more.
    """
    assert len(pages) >= CHECK_PAGES, "too few pages"
    probe = Probe.over(pages, context=0, num_rows=CHECK_ROWS[-1])
    cells = _series(CHECK_ROWS, lambda count: _step_call(executor, probe, count))
    cells[0].run()
    before, end = usage(), clock() + box_seconds
    _first_round(cells, end, clock)
    _more_rounds(cells, end, clock)
    load = load_between(before, usage())
    known = [cell for cell in cells if len(cell.times) > 1]
    return Check(max((_off(cell.seconds, _predicted(table, cell.num_rows)) for cell in known), default=1.0), load)


def _predicted(table: CostTable, num_rows: int) -> float:
    return table.seconds(num_rows, table.num_layers, 0, num_rows)


def _off(seconds: float, predicted: float) -> float:
    if abs(seconds - predicted) <= NOISE_SECONDS:
        return 1.0
    low, high = sorted((seconds, predicted))
    return high / low if low > 0 else math.inf


def _table(
    num_layers: int, least: int, context: int, short: list[_Cell], long: list[_Cell], head: list[_Cell], single: _Cell
) -> CostTable:
    call = max(0.0, single.seconds - short[0].seconds) / max(1, num_layers - 1) if single.times else 0.0
    near = {cell.num_rows: cell.seconds for cell in short if cell.times}
    far = {cell.num_rows: cell.seconds for cell in long if cell.times and cell.num_rows in near}
    rates = [(rows, (seconds - near[rows]) / (context - least)) for rows, seconds in far.items()]
    return CostTable(
        num_layers=num_layers,
        context=least,
        call=call,
        layers=Curve.fit((rows, seconds - call) for rows, seconds in near.items()),
        per_token=Curve.fit(rates or [(1, 0.0)]),
        head=Curve.fit((cell.num_rows, cell.seconds) for cell in head if cell.times),
    )


def _written_probe(executor: LayerExecutor, pages: Ids, seconds: float, clock: Clock) -> Probe:
    """A context as long as pages, model and (after its first page) seconds allow, with its K/V written."""
    num_scratch = pages_for_rows(ROW_COUNTS[-1])
    longest = min(LONG_CONTEXT, (len(pages) - num_scratch) * PAGE_SIZE, executor.config.max_context - 1)
    probe = Probe.over(pages, context=longest, num_rows=ROW_COUNTS[-1])
    _layers_call(executor, probe, 1, 0)()  # fetches the weights
    begin = clock()
    for page in range(len(probe.context_pages)):
        if page >= 1 and (clock() - begin) * (page + 1) / page > seconds:
            return Probe(probe.context_pages[:page], probe.scratch_pages)
        probe.write_page(executor, page)
    return probe


def _series(row_counts: Iterable[int], call: Callable[[int], Callable[[], object]]) -> list[_Cell]:
    cells: list[_Cell] = []
    for count in row_counts:
        cells.append(_Cell(count, call(count), cells[-1] if cells else None))
    return cells


def _layers_call(executor: LayerExecutor, probe: Probe, count: int, context: int) -> Callable[[], object]:
    rows = probe.rows(count, context)
    h = executor.embed(rows)
    return lambda: executor.run_layers(h, rows, 0, executor.config.num_layers)


def _head_call(executor: LayerExecutor, probe: Probe, count: int) -> Callable[[], object]:
    h = executor.embed(probe.rows(count, 0))
    return lambda: executor.logits(h)


def _step_call(executor: LayerExecutor, probe: Probe, count: int) -> Callable[[], object]:
    rows = probe.rows(count, 0)
    h = executor.embed(rows)
    return lambda: executor.logits(executor.run_layers(h, rows, 0, executor.config.num_layers))


def _single_layers_call(executor: LayerExecutor, probe: Probe, context: int) -> Callable[[], object]:
    """One row through all layers, a call a layer: what it takes longer than one call is the price of calls."""
    rows = probe.rows(1, context)
    first = executor.embed(rows)

    def run() -> None:
        h = first
        for layer in range(executor.config.num_layers):
            h = executor.run_layers(h, rows, layer, layer + 1)

    return run


def _first_round(cells: list[_Cell], end: float, clock: Clock) -> None:
    """Time each cell once while it promises to end in time."""
    for cell in cells:
        if not cell.times and clock() + cell.expected <= end:
            _time(cell, clock)


def _more_rounds(cells: list[_Cell], end: float, clock: Clock) -> None:
    """Repeat the cells that there are."""
    for _ in range(MAX_ROUNDS - 1):
        for cell in cells:
            if cell.times and clock() + cell.expected <= end:
                _time(cell, clock)


def _time(cell: _Cell, clock: Clock) -> None:
    begin = clock()
    cell.run()
    cell.times.append(clock() - begin)
