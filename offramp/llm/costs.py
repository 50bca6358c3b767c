"""Costs of a loaded model on this machine: found on disk or measured, and kept there."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np

from offramp.core import Ids
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_file import cost_path, read_costs, write_costs
from offramp.engine.cost_table import CostTable
from offramp.engine.engine import Engine
from offramp.engine.measure import LEAST_PAGES, PROBE_PAGES, measure_costs
from offramp.errors import ResourceError
from offramp.llm.loading import LoadedModel
from offramp.native import NativeExecutor
from offramp.native.processor import processor_name

COSTS = "costs"
"""Folder of measured costs within the cache."""


def load_costs(loaded: LoadedModel, folder: Path) -> MeasuredCosts:
    """The costs kept in `folder`, or measured now (about 2 s).

    Call it before the first request: measuring overwrites the executor's first K/V pages.
    """
    return MeasuredCosts(_kept(loaded, folder) or _measure(loaded, _first_pages(loaded), _path(loaded, folder)))


def fill_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> None:
    """`load_costs` beside an engine that has pages in use, between its steps."""
    table = _kept(loaded, folder)
    if table is None:
        with engine.lend_pages(PROBE_PAGES, least=LEAST_PAGES) as pages:
            table = _measure(loaded, pages, _path(loaded, folder))
    costs.replace(table)


def refresh_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> bool:
    """Measure stale costs anew on pages that the engine does not use (about 2 s, between steps); whether it did."""
    if not costs.stale or engine.has_work:
        return False
    with engine.lend_pages(PROBE_PAGES, least=LEAST_PAGES) as pages:
        costs.replace(_measure(loaded, pages, _path(loaded, folder)))
    return True


def _kept(loaded: LoadedModel, folder: Path) -> CostTable | None:
    path = _path(loaded, folder)
    kept = read_costs(path) if path else None
    return kept if kept is not None and kept.num_layers == loaded.config.num_layers else None


def _first_pages(loaded: LoadedModel) -> Ids:
    return np.arange(min(PROBE_PAGES, loaded.executor.num_pages), dtype=np.int32)


def _measure(loaded: LoadedModel, pages: Ids, path: Path | None) -> CostTable:
    if len(pages) < LEAST_PAGES:
        hint = "give the K/V cache more memory, or switch drafts off"
        raise ResourceError(f"measuring costs takes {LEAST_PAGES} K/V pages, and fewer are free", hint=hint)
    table = measure_costs(loaded.executor, pages)
    if path:
        write_costs(path, table)
    return table


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
