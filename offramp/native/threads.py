"""How many threads to use when nobody says: what affinity and the cgroup's CPU quota leave to this process."""

from __future__ import annotations

import math
import os
from pathlib import Path

from offramp.params import check_int

MAX_THREADS = 256


def check_threads(threads: int | None) -> None:
    """Refuse an impossible number; None stands for the default."""
    check_int("threads", threads, 1, MAX_THREADS, optional=True)


def default_threads(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The smaller of the CPUs this process may run on and its cgroup quota, at least 1."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota_v2(cgroup / "cpu.max") or _quota_v1(cgroup / "cpu")
    return max(1, min(allowed, quota) if quota else allowed)


def _quota_v2(path: Path) -> int | None:
    fields = _read(path).split()
    if len(fields) != 2 or fields[0] == "max":
        return None
    return math.ceil(int(fields[0]) / int(fields[1]))


def _quota_v1(folder: Path) -> int | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if not quota or not period or int(quota) <= 0:
        return None
    return math.ceil(int(quota) / int(period))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # no such controller here
        return ""
