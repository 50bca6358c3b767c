"""How busy others keep the machine while something is timed, from what Linux counts.

Three readings, as each is blind where the others see. The CPU time of everybody less our own shows neighbours, also
those that slow us through memory alone, and time that a hypervisor takes; it counts in ticks. How long our own threads
stood ready without a core shows a single neighbour on one of many cores, whom all wait for at the next barrier. How
long the thread that times did not run shows another engine of this process, which has the pool of threads meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

QUIET_LOAD = 0.1
"""Timings are those of a quiet machine up to this load of others."""

IDLE_SLACK = 0.1
"""What the thread that times may sleep by itself, at barriers and between calls."""

BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)  # of a line of /proc/stat: user, nice, system, irq, softirq, steal


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counters at one moment, in seconds since some moment; what the system does not tell is None or missing."""

    now: float
    own: float  # CPU time of this process
    thread: float  # CPU time of the calling thread
    busy: float | None  # CPU time of everybody, on the CPUs that this process may use
    waited: Mapping[int, float]  # by thread of this process: ready to run, without a core
    num_cpus: int  # that this process may use
    tick: float  # `busy` is counted in these, for each CPU


def read_usage(proc: Path = Path("/proc")) -> Usage:
    """The counters now; takes a fraction of a millisecond."""
    cpus = os.sched_getaffinity(0)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    ticks = _busy_ticks(proc / "stat", {f"cpu{cpu}" for cpu in cpus})
    return Usage(
        now=time.perf_counter(),
        own=time.process_time(),
        thread=time.thread_time(),
        busy=None if ticks is None else ticks * tick,
        waited=_waited(proc / "self" / "task"),
        num_cpus=len(cpus),
        tick=tick,
    )


def load_between(before: Usage, after: Usage) -> float:
    """Of others between two moments of one thread that only computes: about 0 on a quiet machine, at most 1.

    The largest of their share of the CPUs, of the seconds that our threads together waited in a second, and of those
    that the calling thread did not run.
    """
    seconds = after.now - before.now
    if seconds <= 0:
        return 0.0
    waited = sum(total - before.waited.get(thread, 0.0) for thread, total in after.waited.items())
    loads = [0.0, waited / seconds, 1 - (after.thread - before.thread) / seconds - IDLE_SLACK]
    if before.busy is not None and after.busy is not None:
        others = after.busy - before.busy - (after.own - before.own) - after.tick * after.num_cpus  # ticks round
        loads.append(others / (seconds * after.num_cpus))
    return min(1.0, max(loads))


def _busy_ticks(stat: Path, names: set[str]) -> int | None:
    try:
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    found = [line[1:] for line in lines if line and line[0] in names]
    return sum(int(line[column]) for line in found for column in BUSY_COLUMNS) if found else None


def _waited(tasks: Path) -> dict[int, float]:
    waited: dict[int, float] = {}
    try:
        threads = list(tasks.iterdir())
    except OSError:
        return waited
    for thread in threads:
        try:
            fields = (thread / "schedstat").read_text(encoding="ascii").split()  # ns running, ns waiting, turns
        except OSError:
            continue  # it has ended, or the kernel does not count this
        waited[int(thread.name)] = int(fields[1]) / 1e9
    return waited
