"""Which processor this is."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as it calls itself, or its architecture."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
