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
    path = _path(loaded, folder)
    kept = read_costs(path) if path else None
    if kept is not None and kept.num_layers == loaded.config.num_layers:
        return MeasuredCosts(kept)
    num_pages = min(PROBE_PAGES, loaded.executor.num_pages)
    if num_pages < LEAST_PAGES:
        hint = "give the K/V cache more memory"
        raise ResourceError(f"measuring costs takes {LEAST_PAGES} K/V pages, and there are {num_pages}", hint=hint)
    pages = np.arange(num_pages, dtype=np.int32)
    return MeasuredCosts(_measure(loaded, pages, path))


def refresh_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> bool:
    """Measure stale costs anew on pages that the engine does not use (about 2 s, between steps); whether it did."""
    if not costs.stale or engine.has_work:
        return False
    with engine.lend_pages(PROBE_PAGES) as pages:
        costs.replace(_measure(loaded, pages, _path(loaded, folder)))
    return True


def _measure(loaded: LoadedModel, pages: Ids, path: Path | None) -> CostTable:
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
