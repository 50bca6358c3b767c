"""Pieces of generated pages: tables, ratios, and where and when it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.data import json_lines
from offramp.bench.report.notices import QUIET_LOAD

Json = dict[str, Any]


def machine_line(facts: Json) -> str:
    """What a run's provenance says, in a paragraph; and a warning when the machine was busy as it began."""
    changed = f" with {len(facts['changed_files'])} changed files" if facts["changed_files"] else ""
    load = " ".join(map(str, facts["load_at_start"]))
    text = f"{facts['measured_at']}, commit {facts['commit'][:12]}{changed}, {facts['cpu']} with {facts['cores']} "
    text += f"cores ({' '.join(facts['cpu_flags'])}), {facts['memory_gib']} GiB, {facts['threads']} threads, "
    text += f"load averages {load} at the start. `{facts['command']}`\n"
    if facts["load_at_start"][0] > QUIET_LOAD:
        text += (
            "\n**The machine was not quiet**, and engines whose threads spin at barriers suffer most: measure again.\n"
        )
    return text


def ratio_text(ratio: Json) -> str:
    """Median and interval."""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    return "\n".join(_table_lines(head, rows)) + "\n"


def yes(value: bool) -> str:
    """In a cell of a table."""
    return "yes" if value else "no"


def read_results(path: Path) -> list[Json]:
    """The lines of a run, in order."""
    return json_lines(path)


def _table_lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cells) + " |"
