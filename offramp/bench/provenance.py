"""Where and with what a number was measured: every benchmark's JSON line carries it."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np


def provenance() -> dict[str, object]:
    """Machine, versions and time, as JSON values."""
    return {
        "offramp": version("offramp"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu": cpu_name(),
        "kernel": platform.release(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as it calls itself, or its architecture."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
