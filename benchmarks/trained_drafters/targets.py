"""What trained drafters should reach, and whether they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.session import Json
from benchmarks.speculation.contestant import Method
from benchmarks.speculation.summary import ALL
from benchmarks.speculation.targets import NARROW, target_line
from benchmarks.trained_drafters.methods import EAGLE, EVERYTHING, SELF
from benchmarks.trained_drafters.parser import PARSING

LEAST: tuple[tuple[Method, str, float, float | None], ...] = (
    (EAGLE, ALL, 1.3, None),
    (EVERYTHING, ALL, 1.45, 1.7),
    (EVERYTHING, "rag", 1.6, 2.0),
    (EVERYTHING, "summarization", 1.6, 2.0),
    (SELF, PARSING, 1.4, None),
)
"""Method, task, the least median against plain decoding, and the stretch."""


def target_lines(lines: Sequence[Json]) -> Iterator[Json]:
    """A line a target, of those that were measured."""
    found = {(line["method"], line["task"]): line for line in lines if line["result"] == "method"}
    for method, task, target, stretch in LEAST:
        line = found.get((method.name, task))
        if line is not None:
            yield target_line(f"{method.name}: {task}", line, target, stretch, line["ratio"]["median"] >= target)
    tasks = [line for (name, task), line in found.items() if name == EVERYTHING.name and task not in (ALL, PARSING)]
    if tasks:
        worst = min(tasks, key=lambda line: float(line["ratio"]["median"]))
        yield _never_slower(f"{EVERYTHING.name}: worst task ({worst['task']})", worst)
    for line in lines:
        if line["result"] == "streams":
            yield _never_slower(f"{line['method']}: {line['streams']} streams", line)


def _never_slower(what: str, line: Json) -> Json:
    """The interval contains 1 or better, and is narrow enough to say so."""
    ratio = line["ratio"]
    narrow = ratio["high"] - ratio["low"] <= 2 * NARROW
    return target_line(what, line, None, None, ratio["low"] >= 1 or (ratio["high"] >= 1 and narrow))
