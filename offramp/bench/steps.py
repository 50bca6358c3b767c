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

from offramp.core import PAGE_SIZE, CostModel
from offramp.engine.probe import Probe, pages_for_rows
from offramp.model.executor import LayerExecutor

MIN_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Milliseconds of one call: what the cost model says, the median and the least of `repeats`."""

    part: str  # a layer range such as "0:30", or "head"
    rows: int
    predicted_ms: float
    median_ms: float
    least_ms: float
    repeats: int


def layer_ranges(num_layers: int) -> list[tuple[int, int]]:
    """The whole network and its thirds; fewer where it has fewer layers."""
    cuts = sorted({0, num_layers // 3, 2 * num_layers // 3, num_layers})
    thirds = list(pairwise(cuts))
    return [(0, num_layers), *thirds] if len(thirds) > 1 else [(0, num_layers)]


def measure_steps(
    executor: LayerExecutor, costs: CostModel, *, row_counts: list[int], context: int, seconds_per_cell: float
) -> Iterator[StepTime]:
    """One result a layer range and row count, then the head's. Rows are sequences that share a prefix of `context`.

    Overwrites the executor's K/V: use a fresh one.
    """
    context = pages_for_rows(context) * PAGE_SIZE
    pages = np.arange(executor.num_pages, dtype=np.int32)
    probe = Probe.over(pages, context=context, num_rows=max(row_counts))
    for page in range(context // PAGE_SIZE):
        probe.write_page(executor, page)
    num_layers = executor.config.num_layers
    for count in row_counts:
        rows = probe.rows(count, context)
        h = executor.embed(rows)
        for start, stop in layer_ranges(num_layers):
            entry = executor.run_layers(h, rows, 0, start) if start else h

            def layers() -> object:
                return executor.run_layers(entry, rows, start, stop)  # noqa: B023 - called within the iteration

            predicted = costs.seconds(count, stop - start, context, num_head_rows=0)
            yield _time(f"{start}:{stop}", count, predicted, layers, seconds_per_cell)
        last = executor.run_layers(h, rows, 0, num_layers)
        predicted = costs.seconds(count, 0, 0)
        yield _time("head", count, predicted, lambda: executor.logits(last), seconds_per_cell)  # noqa: B023


def _time(part: str, rows: int, predicted: float, call: Callable[[], object], seconds: float) -> StepTime:
    """Repeat a call for `seconds`, at least a few times, after one that does not count."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < MIN_REPEATS or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    return StepTime(
        part=part,
        rows=rows,
        predicted_ms=round(1000 * predicted, 4),
        median_ms=round(median(times), 4),
        least_ms=round(min(times), 4),
        repeats=len(times),
    )
