"""The engine's counters as other threads may read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from offramp.engine.statistics import Statistics


@dataclass(slots=True)
class WorkerStatistics(Statistics):
    """The engine's statistics as of some moment between two steps, and the queue before it."""

    num_queued: int = 0  # requests that the engine does not have yet, now


GAUGES = frozenset({"num_running", "num_waiting", "num_used_pages", "num_pages", "num_queued"})
"""What is so now; all else counts up."""


def after(past: WorkerStatistics, now: WorkerStatistics) -> WorkerStatistics:
    """The counts of an engine together with those of engines before it."""
    both = WorkerStatistics()
    for field in fields(WorkerStatistics):
        name, value = field.name, getattr(now, field.name)
        setattr(both, name, value if name in GAUGES else getattr(past, name) + value)
    return both


def snapshot(statistics: Statistics, num_queued: int) -> WorkerStatistics:
    """A copy that no step changes any more."""
    copy = WorkerStatistics(num_queued=num_queued)
    for field in fields(Statistics):
        value = getattr(statistics, field.name)
        setattr(copy, field.name, value.copy() if isinstance(value, Counter) else value)
    return copy
