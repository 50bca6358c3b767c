"""What commands say of the prompts that they measure with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offramp.cli.messages import counted, say

if TYPE_CHECKING:
    from offramp.bench.workloads.item import Workload


def tell_refused(workload: Workload, place: str) -> None:
    """The lines of a file that can't be run: how many, and why the first."""
    if workload.refused:
        first = workload.refused[0]
        lines = counted(len(workload.refused), "line")
        say(f"note: {lines} of {place} left out; {first.where} {first.reason}")
