"""What commands say of the prompts that they measure with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offramp.cli.messages import counted, say
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.bench.workloads.item import Workload


def tell_refused(workload: Workload, place: str) -> None:
    """The lines of a file that can't be run: how many, and why the first."""
    if workload.refused:
        first = workload.refused[0]
        lines = counted(len(workload.refused), "line")
        say(f"note: {lines} of {place} left out; {first.where} {first.reason}")


def shipped_prompts(limit: int | None, *, raw: bool, asked_by: str) -> Workload:
    """The prompts that come along, which are questions to a chat: refused by what asks for them beside --raw."""
    from offramp.bench.workloads import shipped_workload

    if raw:
        hint = "name a file of your own, or leave --raw out: the prompts that come along are questions to a chat"
        raise InvalidRequestError(f"--raw {asked_by}", hint=hint, param="raw")
    return shipped_workload(limit)
