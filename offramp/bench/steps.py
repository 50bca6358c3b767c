"""Time of one executor call by number of rows and by layer range; the output head apart.

A decoding step of few rows is bound by bytes: each layer's weights are read once whatever the number of rows, so
milliseconds grow slowly until arithmetic dominates. That bend decides how many draft tokens a step verifies for free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from offramp.core import PAGE_SIZE, Rows
from offramp.model.executor import LayerExecutor

MIN_REPEATS = 3
WARM_UP_ROWS = PAGE_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Milliseconds of one call: the median and the least of `repeats`."""

    part: str  # a layer range such as "0:30", or "head"
    rows: int
    median_ms: float
    least_ms: float
    repeats: int


def layer_ranges(num_layers: int) -> list[tuple[int, int]]:
    """The whole network and its thirds; fewer where it has fewer layers."""
    cuts = sorted({0, num_layers // 3, 2 * num_layers // 3, num_layers})
    thirds = list(pairwise(cuts))
    return [(0, num_layers), *thirds] if len(thirds) > 1 else [(0, num_layers)]


def measure_steps(
    executor: LayerExecutor, *, row_counts: list[int], context: int, seconds_per_cell: float
) -> Iterator[StepTime]:
    """One result a layer range and row count, then the head's. Rows are sequences that share a prefix of `context`.

    Overwrites the executor's K/V: use a fresh one.
    """
    shared = -(-context // PAGE_SIZE)
    assert shared + max(row_counts) <= executor.num_pages, "too few pages"
    _write_prefix(executor, shared)
    num_layers = executor.config.num_layers
    for count in row_counts:
        rows = _decode_rows(count, shared)
        h = executor.embed(rows)
        for start, stop in layer_ranges(num_layers):
            entry = executor.run_layers(h, rows, 0, start) if start else h

            def layers() -> object:
                return executor.run_layers(entry, rows, start, stop)  # noqa: B023 - called within the iteration

            yield _time(f"{start}:{stop}", count, layers, seconds_per_cell)
        last = executor.run_layers(h, rows, 0, num_layers)
        yield _time("head", count, lambda: executor.logits(last), seconds_per_cell)  # noqa: B023


def _time(part: str, rows: int, call: Callable[[], object], seconds: float) -> StepTime:
    """Repeat a call for `seconds`, at least a few times, after one that does not count."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < MIN_REPEATS or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    return StepTime(
        part=part, rows=rows, median_ms=round(median(times), 4), least_ms=round(min(times), 4), repeats=len(times)
    )


def _write_prefix(executor: LayerExecutor, num_pages: int) -> None:
    """Real K/V in the first pages, a page a call."""
    pages = np.arange(num_pages, dtype=np.int32)
    for page in range(num_pages):
        positions = np.arange(page * PAGE_SIZE, (page + 1) * PAGE_SIZE, dtype=np.int32)
        rows = _chain(positions, np.zeros(PAGE_SIZE, np.int32), pages, np.array([0, num_pages], np.int32))
        executor.run_layers(executor.embed(rows), rows, 0, executor.config.num_layers)


def _decode_rows(count: int, shared: int) -> Rows:
    """One row a sequence, the first in a page of its own after the shared prefix."""
    lists = [[*range(shared), shared + row] for row in range(count)]
    starts = np.arange(count + 1, dtype=np.int32) * np.int32(shared + 1)
    positions = np.full(count, shared * PAGE_SIZE, np.int32)
    return _chain(positions, np.arange(count, dtype=np.int32), np.array(lists, np.int32).reshape(-1), starts)


def _chain(
    positions: np.ndarray[tuple[int], np.dtype[np.int32]],
    sequence: np.ndarray[tuple[int], np.dtype[np.int32]],
    page_ids: np.ndarray[tuple[int], np.dtype[np.int32]],
    page_starts: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> Rows:
    count = len(positions)
    return Rows(
        tokens=np.arange(count, dtype=np.int32) % 50,
        sequence=sequence,
        positions=positions,
        slots=positions,
        prefix_lens=positions,
        ancestor_slots=np.empty(0, np.int32),
        ancestor_starts=np.zeros(count + 1, np.int32),
        page_ids=page_ids,
        page_starts=page_starts,
    )
