"""What early exits should reach, and whether they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.early_exit.cells import MANY_PROPAGATE, ONE, SOME_LITERAL
from benchmarks.session import Json

ONE_TARGET, MANY_TARGET, LITERAL_TARGET = 1.5, 1.3, 1.2


def target_lines(lines: Sequence[Json]) -> Iterator[Json]:
    """A line a target, of those that were measured. One is met by its median, and within a point of exact match."""
    cells = {line["cell"]: line for line in lines if line["result"] == "cell" and line["ratio"]}
    alone = [line for line in cells.values() if line["streams"] == ONE]
    if alone:
        kept = [line for line in alone if line["within"]] or alone
        best = max(kept, key=lambda line: float(line["ratio"]["median"]))
        yield _target("SNIPS parser, one stream, best fill", best, ONE_TARGET)
    for what, cell, target in (
        ("the same at 16 streams, `propagate`, `compact`", MANY_PROPAGATE, MANY_TARGET),
        ("literal barrier and `propagate`, 4 streams", SOME_LITERAL, LITERAL_TARGET),
    ):
        if cell.name in cells:
            yield _target(what, cells[cell.name], target)
    for line in lines:
        if line["result"] == "versus" and line["streams"] == MANY_PROPAGATE.streams and line["ratio"]:
            yield _versus(line, cells[MANY_PROPAGATE.name])


def _target(what: str, line: Json, target: float) -> Json:
    facts = {name: line[name] for name in ("cell", "ratio", "exact", "full_exact", "points", "within", "predicted")}
    return {"result": "target", "what": what, "target": target, **facts, "met": _met(line, target)}


def _versus(line: Json, compact: Json) -> Json:
    """`compact` over the literal barrier, both at their best setting and in the same turns."""
    facts = {name: compact[name] for name in ("cell", "exact", "full_exact", "points", "within")}
    met = line["ratio"]["median"] >= 1 and compact["within"]
    what = "16 streams: `compact` over the literal barrier"
    return {"result": "target", "what": what, "target": 1.0, "ratio": line["ratio"], **facts, "met": met}


def _met(line: Json, target: float) -> bool:
    return bool(line["ratio"]["median"] >= target and line["within"])
