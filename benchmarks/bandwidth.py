"""How fast this machine reads memory: a small C probe, compiled when needed with the system's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).with_name("bandwidth.c")
MEGABYTES = 512
PASSES = 9


def build_probe(folder: Path) -> Path:
    """The compiled probe in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / "bandwidth"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O3", "-march=native", "-pthread", str(SOURCE), "-o", str(probe)], check=True)
    return probe


def read_bandwidth(probe: Path, threads: int) -> float:
    """Bytes per second that `threads` threads read together: the median of a few passes after one unmeasured."""
    command = [str(probe), str(threads), str(MEGABYTES), str(PASSES)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return median(float(line) for line in output.split()[1:])
