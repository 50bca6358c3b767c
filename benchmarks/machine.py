"""Where, with what and how busy: what every line of results carries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from offramp.bench.provenance import provenance

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8")


def run_provenance(root: Path, program: str) -> dict[str, object]:
    """Machine, versions, commit, command (`python -m program ...`) and time of this run, as JSON values."""
    return {
        **provenance(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu_flags": cpu_flags(Path("/proc/cpuinfo")),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "commit": _git(root, "rev-parse", "HEAD"),
        "changed_files": _git(root, "status", "--porcelain", "--", "offramp", "csrc", "benchmarks").splitlines(),
        "command": public_command(["python", "-m", program, *sys.argv[1:]]),
        "load_at_start": load(),
    }


def public_command(words: Sequence[str]) -> str:
    """The command without the folders of the machine that it ran on."""
    return re.sub(r" --(environments|offramp-python|output|page|stored)[ =]\S+", "", " ".join(words))


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def cpu_flags(cpuinfo: Path) -> list[str]:
    """The instruction sets that decide which kernels run."""
    line = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "")
    have = set(line.partition(":")[2].split())
    return [flag for flag in FLAGS if flag in have]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.rstrip() if done.returncode == 0 else "unknown"
