"""What exits cost at one stream, in seconds: the engine's cost table, and what it does not have, measured here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from offramp.calibrate.answers import Rig
from offramp.calibrate.scores import predictors_of
from offramp.core import PAGE_SIZE, Ids
from offramp.engine.cost import MeasuredCosts
from offramp.engine.probe import Probe
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import ExitRows
from offramp.exits.predictors import Predictor
from offramp.llm.exits import LoadedExits

MOST_ROWS = 8
"""Of a step at one stream: a token, and the debts that it may take along."""
LEAST_REPEATS, MOST_REPEATS = 5, 400
PATIENCE_SECONDS = 0.03
"""For timing one thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCosts:
    """Seconds of the parts of a step in which one sequence decodes."""

    call: float  # running a range at all, whatever its length
    layer: tuple[float, ...]  # one layer for 1, 2, ... rows
    head: float  # the model's own, one row
    ask: Mapping[int, float]  # one row at an exit point: its head, measure and decision
    predict: Mapping[str, float]  # one row, by whose predictor
    fill: float  # one row's K/V of one layer, projected
    step: float  # planning, drawing, committing

    def range(self, num_rows: int, num_layers: int) -> float:
        """One call through some layers."""
        return self.call + num_layers * self.layer[min(num_rows, len(self.layer)) - 1] if num_layers else 0.0

    def full(self, num_layers: int) -> float:
        """A step without exits."""
        return self.range(1, num_layers) + self.head + self.step


def measure_exit_costs(rig: Rig, exits: LoadedExits, costs: MeasuredCosts, *, context: int, step: float) -> ExitCosts:
    """With so many tokens before a row, and steps that take so much besides the executor. `costs` have a table.

    The engine must be idle: it lends pages.
    """
    assert costs.table is not None, "costs were measured"
    num_layers = rig.num_layers
    rows = range(1, MOST_ROWS + 1)
    whole = [costs.seconds(count, num_layers, context, num_head_rows=0) for count in rows]
    call = costs.correction(1) * costs.table.call
    with rig.engine.lend_pages(2) as pages:
        return ExitCosts(
            call=call,
            layer=tuple(max(0.0, seconds - call) / num_layers for seconds in whole),
            head=costs.seconds(1, 0, 0),
            ask={layer: _seconds(_ask(rig, exits, layer, pages)) for layer in exits.heads},
            predict={name: _seconds(_predict(rig, table, pages)) for name, table in predictors_of(exits).items()},
            fill=_seconds(_fill(rig, pages)) / num_layers,
            step=step,
        )


def _ask(rig: Rig, exits: LoadedExits, layer: int, pages: Ids) -> Callable[[], object]:
    """A row that is asked and stays."""
    policy = FrozenPolicy(layers=(layer,), thresholds=(1.0,), measure="margin").policy(exits.heads)
    hidden = rig.executor.embed(_probe(pages).rows(1, 0))

    def run() -> None:
        policy.decide(
            ExitRows(
                rig.executor,
                exits.heads[layer],
                layer=layer,
                hidden=hidden,
                previous=None,
                keys=[("probe", 0)],
                outputs=np.zeros(1, np.int32),
            )
        )

    return run


def _predict(rig: Rig, predictors: Mapping[int, Predictor], pages: Ids) -> Callable[[], object]:
    hidden = rig.executor.embed(_probe(pages).rows(1, 0)).numpy()
    predictor = next(iter(predictors.values()))
    previous = hidden if predictor.wants_previous else None
    return lambda: predictor.scores(hidden, previous)


def _fill(rig: Rig, pages: Ids) -> Callable[[], object]:
    rows = _probe(pages).rows(1, 0)
    hidden = rig.executor.embed(rows)
    return lambda: rig.executor.fill(hidden, rows, 0, rig.num_layers)


def _probe(pages: Ids) -> Probe:
    assert len(pages) * PAGE_SIZE >= PAGE_SIZE, "a page to write"
    return Probe.over(pages, context=0, num_rows=1)


def _seconds(run: Callable[[], object]) -> float:
    """The lower quartile of some runs: neighbours only ever make them longer."""
    run()
    end = time.perf_counter() + PATIENCE_SECONDS
    times: list[float] = []
    while len(times) < LEAST_REPEATS or (len(times) < MOST_REPEATS and time.perf_counter() < end):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 4]
