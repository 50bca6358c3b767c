"""Costs of a loaded model on this machine: found on disk and checked, or measured, and kept there.

A table that was measured beside busy neighbours is kept with their load: while they stay it does, and the first quiet
moment measures anew. It never takes the place of a better one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path

import numpy as np

from offramp.core import Ids
from offramp.engine.contention import QUIET_LOAD
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_file import cost_path, read_costs, write_costs
from offramp.engine.cost_table import CostTable
from offramp.engine.engine import Engine
from offramp.engine.measure import (
    CHECK_PAGES,
    CONTRADICTED,
    LEAST_PAGES,
    PROBE_PAGES,
    Check,
    check_costs,
    measure_costs,
)
from offramp.errors import ResourceError
from offramp.llm.loading import LoadedModel
from offramp.native import NativeExecutor
from offramp.native.processor import processor_name

COSTS = "costs"
"""Folder of measured costs within the cache."""

Lend = Callable[[int, int], AbstractContextManager[Ids]]
"""At most and at least so many pages to time something on; none where there are too few."""

log = logging.getLogger("offramp")


def load_costs(loaded: LoadedModel, folder: Path) -> MeasuredCosts:
    """The costs kept in `folder`, checked (under 0.1 s), or measured now (about 2 s).

    Call it before the first request: both overwrite the executor's first K/V pages.
    """
    pages = np.arange(loaded.executor.num_pages, dtype=np.int32)
    return MeasuredCosts(_found(loaded, folder, lambda most, least: nullcontext(pages[:most])))


def fill_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> None:
    """`load_costs` beside an engine that has pages in use, between its steps."""
    costs.replace(_found(loaded, folder, _lent_by(engine)))


def refresh_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> bool:
    """Measure doubtful costs anew on pages that the engine does not use (about 2 s, between steps); whether it did.

    Not while others keep the machine as busy as when the table was measured: then corrections know more than a new one
    would (that is found out in under 0.1 s).
    """
    table = costs.table
    if table is None or not costs.doubtful or engine.has_work:
        return False
    lend = _lent_by(engine)
    if not table.outdone_at(_check(loaded, table, lend).load):
        return False
    measured = _measure(loaded, lend, _path(loaded, folder))
    if measured.load > max(QUIET_LOAD, table.load):
        return False
    costs.replace(measured)
    return True


def _found(loaded: LoadedModel, folder: Path, lend: Lend) -> CostTable:
    path = _path(loaded, folder)
    kept = read_costs(path) if path else None
    if kept is None or kept.num_layers != loaded.config.num_layers:
        return _measure(loaded, lend, path)
    check = _check(loaded, kept, lend)
    if not ((kept.contended or check.off > CONTRADICTED) and kept.outdone_at(check.load)):
        return kept
    log.info("kept costs are those of a busy moment, or of another machine: measuring anew")
    try:
        return _measure(loaded, lend, path)
    except ResourceError:  # no pages for that beside others: steps will tell whether it is stale
        return kept


def _check(loaded: LoadedModel, table: CostTable, lend: Lend) -> Check:
    """A few calls against a table; without pages for them nothing is wrong, and it is no moment to measure in."""
    with lend(CHECK_PAGES, CHECK_PAGES) as pages:
        if len(pages) < CHECK_PAGES:
            return Check(1.0, math.inf)
        return check_costs(loaded.executor, pages, table)


def _measure(loaded: LoadedModel, lend: Lend, path: Path | None) -> CostTable:
    with lend(PROBE_PAGES, LEAST_PAGES) as pages:
        if len(pages) < LEAST_PAGES:
            hint = "give the K/V cache more memory, or switch drafts off"
            raise ResourceError(f"measuring costs takes {LEAST_PAGES} K/V pages, and fewer are free", hint=hint)
        table = measure_costs(loaded.executor, pages)
    if table.contended:
        log.info("other programs kept the machine busy while costs were measured: drafts may be chosen badly for now")
    if path:
        _keep(path, table)
    return table


def _keep(path: Path, table: CostTable) -> None:
    """Unless a better one is there."""
    kept = read_costs(path) if table.contended else None
    if kept is None or table.load <= kept.load:
        write_costs(path, table)


def _lent_by(engine: Engine) -> Lend:
    return lambda most, least: engine.lend_pages(most, least=least)


def _path(loaded: LoadedModel, folder: Path) -> Path | None:
    """Costs of an executor that we know nothing about are not kept."""
    executor = loaded.executor
    if not isinstance(executor, NativeExecutor):
        return None
    identity = {
        "model": loaded.source_hash,
        "weights": loaded.weights,
        "kv": executor.kv,
        "kernels": executor.path,
        "threads": executor.threads,
        "processor": processor_name(),
        "offramp": version("offramp"),
    }
    return cost_path(folder, identity)
