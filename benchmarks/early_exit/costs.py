"""What the parts of a step cost, by its rows: the engine's cost table, and what exits add, measured anew for a run.

What exits add is timed right after all layers ran, as in a step: their weights and code have left the caches then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from offramp.core import Ids, Rows
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.measure import PROBE_PAGES, measure_costs
from offramp.engine.probe import Probe
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import ExitRows
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel

ROW_COUNTS = (1, 2, 4, 8, 16)
REPEATS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Seconds of the parts of a step. `besides` is planning, drawing and committing."""

    table: CostTable
    context: int  # tokens before a row
    ask: Mapping[int, Curve]  # rows at each exit point: head, measure, decision
    guess: Mapping[str, Curve]  # rows, by whose predictor
    fill: Curve  # rows' K/V of one layer, projected
    besides: Mapping[int, float]  # by streams

    def range(self, num_rows: int, num_layers: int) -> float:
        """One call through some layers."""
        return self.table.seconds(num_rows, num_layers, self.context, 0) if num_rows and num_layers else 0.0

    def layers(self, num_rows: float, num_layers: float) -> float:
        """Layers without the call, for a mean number of rows."""
        return (self.range(max(1, round(num_rows)), 1) - self.table.call) * num_layers

    def full(self, streams: int) -> float:
        """A step of so many streams at full depth."""
        return self.table.seconds(streams, self.table.num_layers, self.context, streams) + self.besides[streams]


def measure_step_costs(loaded: LoadedModel, *, context: int, besides: Mapping[int, float]) -> StepCosts:
    """Overwrites the executor's first K/V pages: nothing may run."""
    exits, executor = loaded.exits, loaded.executor
    assert exits is not None, "a pack is loaded"
    pages = np.arange(min(PROBE_PAGES, executor.num_pages), dtype=np.int32)
    timer = Timer(loaded, exits, pages)
    kinds = [kind for kind in ("pack", "similarity") if exits.predictors(kind)]
    return StepCosts(
        table=measure_costs(executor, pages),
        context=context,
        ask=timer.asks(),
        guess={kind: timer.curve(partial(timer.guess, kind)) for kind in kinds},
        fill=timer.curve(timer.fill, parts=loaded.config.num_layers),
        besides=besides,
    )


class Timer:
    """Makes calls for so many rows, and times them."""

    def __init__(self, loaded: LoadedModel, exits: LoadedExits, pages: Ids) -> None:
        self._exits = exits
        self._executor = loaded.executor
        self._num_layers = loaded.config.num_layers
        self._layers = exits.pack.config.layers
        self._pages = pages
        self._evict = self._all_layers()

    def curve(self, make: Callable[[int], Callable[[], object]], *, parts: int = 1) -> Curve:
        """Lower quartiles of some runs by rows: neighbours only ever make them longer."""
        measured = []
        for count in ROW_COUNTS:
            run = make(count)
            run()
            times = []
            for _ in range(REPEATS):
                self._evict()
                begin = time.perf_counter()
                run()
                times.append(time.perf_counter() - begin)
            measured.append((count, sorted(times)[REPEATS // 4] / parts))
        return Curve.fit(measured)

    def asks(self) -> dict[int, Curve]:
        """By exit point; those with the same head take the same time."""
        heads = self._exits.heads
        first = {heads[layer]: layer for layer in reversed(self._layers)}
        curves = {head: self.curve(partial(self.ask, layer)) for head, layer in first.items()}
        return {layer: curves[heads[layer]] for layer in self._layers}

    def ask(self, layer: int, count: int) -> Callable[[], object]:
        """Rows that are asked and stay."""
        policy = self._exits.policy(FrozenPolicy(layers=(layer,), thresholds=(1.0,), measure="margin"))
        hidden = self._executor.embed(self._rows(count))
        keys = [(str(number), 0) for number in range(count)]
        outputs = np.ones(count, np.int32)

        def run() -> None:
            policy.decide(
                ExitRows(
                    self._executor,
                    self._exits.heads[layer],
                    layer=layer,
                    hidden=hidden,
                    previous=None,
                    keys=keys,
                    outputs=outputs,
                )
            )

        return run

    def guess(self, kind: str, count: int) -> Callable[[], object]:
        predictor = self._exits.predictors(kind)[self._layers[len(self._layers) // 2]]
        hidden = self._executor.embed(self._rows(count)).numpy()
        return lambda: predictor.scores(hidden, hidden if predictor.wants_previous else None)

    def fill(self, count: int) -> Callable[[], object]:
        """Of all layers."""
        rows = self._rows(count)
        hidden = self._executor.embed(rows)
        return lambda: self._executor.fill(hidden, rows, 0, self._num_layers)

    def _all_layers(self) -> Callable[[], object]:
        rows = self._rows(1)
        hidden = self._executor.embed(rows)
        return lambda: self._executor.run_layers(hidden, rows, 0, self._num_layers)

    def _rows(self, count: int) -> Rows:
        return Probe.over(self._pages, context=0, num_rows=count).rows(count, 0)
