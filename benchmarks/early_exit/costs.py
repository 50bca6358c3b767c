"""What the parts of a step cost, by its rows: the engine's cost table, and what exits add, measured anew for a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from offramp.core import Ids
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
    ask: Curve  # rows at an exit point: head, measure, decision
    guess: Mapping[str, Curve]  # rows, by whose predictor
    fill: Curve  # rows' K/V of one layer, projected
    besides: Mapping[int, float]  # by streams

    def range(self, num_rows: int, num_layers: int) -> float:
        """One call through some layers."""
        return self.table.seconds(num_rows, num_layers, self.context, 0) if num_rows and num_layers else 0.0

    def layers(self, num_rows: float, num_layers: float) -> float:
        """Layers without the call, for a mean number of rows: below one, a share of one row's."""
        whole = max(1, round(num_rows))
        seconds = (self.range(whole, 1) - self.table.call) * num_layers
        return seconds * min(1.0, num_rows)

    def full(self, streams: int) -> float:
        """A step of so many streams at full depth."""
        return self.table.seconds(streams, self.table.num_layers, self.context, streams) + self.besides[streams]


def measure_step_costs(loaded: LoadedModel, *, context: int, besides: Mapping[int, float]) -> StepCosts:
    """Overwrites the executor's first K/V pages: nothing may run."""
    exits, executor = loaded.exits, loaded.executor
    assert exits is not None, "a pack is loaded"
    pages = np.arange(min(PROBE_PAGES, executor.num_pages), dtype=np.int32)
    layer = exits.pack.config.layers[len(exits.pack.config.layers) // 2]
    kinds = [kind for kind in ("pack", "similarity") if exits.predictors(kind)]
    return StepCosts(
        table=measure_costs(executor, pages),
        context=context,
        ask=_curve(lambda count: _ask(loaded, exits, layer, pages, count)),
        guess={kind: _curve(lambda count, kind=kind: _guess(loaded, exits, layer, kind, count)) for kind in kinds},  # type: ignore[misc]
        fill=_curve(lambda count: _fill(loaded, pages, count), loaded.config.num_layers),
        besides=besides,
    )


def _ask(loaded: LoadedModel, exits: LoadedExits, layer: int, pages: Ids, count: int) -> Callable[[], object]:
    """Rows that are asked and stay."""
    policy = exits.policy(FrozenPolicy(layers=(layer,), thresholds=(1.0,), measure="margin"))
    hidden = loaded.executor.embed(Probe.over(pages, context=0, num_rows=count).rows(count, 0))
    keys = [(str(number), 0) for number in range(count)]
    outputs = np.ones(count, np.int32)

    def run() -> None:
        policy.decide(
            ExitRows(
                loaded.executor,
                exits.heads[layer],
                layer=layer,
                hidden=hidden,
                previous=None,
                keys=keys,
                outputs=outputs,
            )
        )

    return run


def _guess(loaded: LoadedModel, exits: LoadedExits, layer: int, kind: str, count: int) -> Callable[[], object]:
    predictor = exits.predictors(kind)[layer]
    hidden = np.random.default_rng(0).standard_normal((count, loaded.config.hidden_size)).astype(np.float32)
    return lambda: predictor.scores(hidden, hidden if predictor.wants_previous else None)


def _fill(loaded: LoadedModel, pages: Ids, count: int) -> Callable[[], object]:
    """Of all layers."""
    rows = Probe.over(pages, context=0, num_rows=count).rows(count, 0)
    hidden = loaded.executor.embed(rows)
    return lambda: loaded.executor.fill(hidden, rows, 0, loaded.config.num_layers)


def _curve(call: Callable[[int], Callable[[], object]], parts: int = 1) -> Curve:
    """Lower quartiles of some runs by rows: neighbours only ever make them longer."""
    measured = []
    for count in ROW_COUNTS:
        run = call(count)
        run()
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        measured.append((count, sorted(times)[REPEATS // 4] / parts))
    return Curve.fit(measured)
