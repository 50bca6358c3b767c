"""One prompt of a workload, and the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.prompt_lines import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTest:
    """A program that fails unless the answer is right (HumanEval)."""

    before: str  # the prompt's own beginning of the program
    after: str  # checks what stands in `entry_point`
    entry_point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt."""

    name: str  # within its workload, unique
    task: str
    content: str | Sequence[Message]  # a text to answer (or, raw, to continue), or a conversation
    references: tuple[str, ...] = ()
    code: CodeTest | None = None
    raw: bool = False  # continued as it is, without the chat template


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A line that can't be run, and why; the others are."""

    where: str  # file and line
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The prompts of one file."""

    name: str
    items: tuple[Item, ...]  # at least one
    metrics: tuple[str, ...]  # by which answers are judged, of `offramp.bench.quality`
    sha256: str  # of the file
    refused: tuple[Refused, ...] = ()

    @property
    def tasks(self) -> Mapping[str, int]:
        """How many items each has, in the order of the file."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.task] = counts.get(item.task, 0) + 1
        return counts
