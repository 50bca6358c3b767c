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
    references: tuple[str, ...] = ()  # any of them is right
    code: CodeTest | None = None
    metrics: tuple[str, ...] = ()  # by which its answer is judged, of `offramp.bench.quality`
    raw: bool = False  # continued as it is, without the chat template


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A line that can't be run, and why; the others are."""

    where: str  # file and line
    reason: str  # follows `where` in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The prompts of one file."""

    name: str
    items: tuple[Item, ...]  # at least one
    metrics: tuple[str, ...]  # by which some of its answers are judged
    sha256: str  # of the file
    refused: tuple[Refused, ...] = ()

    @property
    def tasks(self) -> Mapping[str, int]:
        """How many items each has, in the order of the file."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.task] = counts.get(item.task, 0) + 1
        return counts

    @property
    def unscored(self) -> tuple[str, ...]:
        """Items that are run and not judged, as they lack the reference that others of their task have."""
        judged = {item.task for item in self.items if item.metrics}
        return tuple(item.name for item in self.items if item.task in judged and not item.metrics)
