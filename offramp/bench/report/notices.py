"""What went wrong, what is missing, and what is not shown: told before any figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from offramp.bench.report.figures import counted, measured, share
from offramp.bench.report.given import Given, Part
from offramp.bench.report.html import cut
from offramp.bench.report.shapes import SHAPES, is_exact, shape_of
from offramp.bench.results.cells import RAN_AS_FULL
from offramp.bench.results.lines import FailureLine

MOST = 30
"""Notices of a run."""
MOST_NAMES = 5
REASON_LETTERS = 300
QUIET_LOAD = 0.5
"""Processes that wanted to run in the minute before; with more, ratios say more about the neighbours."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know; `bad` where something failed."""

    bad: bool
    text: str


def notices(given: Given) -> list[Notice]:
    """Of one run, the bad ones first; at most MOST, and one more that says how many are left out."""
    parts = given.parts
    found = [*_failures(given.failures), *_refused(given)]
    for part in parts:
        found += [*_broken(part), *_unmeasured(given, part), *_unfinished(given, part), *_unasked(given, part)]
        found += _sparse(part)
        found += _hidden(part)
    found += [
        Notice(True, f"{name}: nothing was measured")
        for name in given.run.workloads
        if name not in [part.workload for part in parts]
    ]
    found += _busy(given.run.provenance)
    found.sort(key=lambda notice: not notice.bad)
    left = len(found) - MOST
    return [*found[:MOST], Notice(False, f"{counted(left, 'notice')} more are not shown")] if left > 0 else found


def _failures(lines: Sequence[FailureLine]) -> Iterator[Notice]:
    """Those of one method, workload, number of streams and reason together."""
    groups: dict[tuple[str, str, int, str], list[FailureLine]] = {}
    for line in lines:
        groups.setdefault((line.method, line.workload, line.streams, line.reason), []).append(line)
    for (method, workload, streams, reason), group in groups.items():
        where = f"{method}, {workload}, {counted(streams, 'stream')}"
        items = list(dict.fromkeys(line.item for line in group if line.item is not None))
        if items:
            yield Notice(True, f"{where}: {_names(items)} failed: {cut(reason, REASON_LETTERS)}")
        rounds = sorted({line.round for line in group if line.item is None})
        if rounds:
            yield Notice(True, f"{where}: stopped in round {rounds[0] + 1}: {cut(reason, REASON_LETTERS)}")


def _refused(given: Given) -> Iterator[Notice]:
    """Lines of workloads that could not be run."""
    for name, facts in given.run.workloads.items():
        told = facts.get("refused")
        lines = [told] if isinstance(told, str | Mapping) else list(told) if isinstance(told, Iterable) else []
        for line in lines:
            if isinstance(line, Mapping):
                text = f"{line.get('where', 'a line')}: {line.get('reason', 'refused')}"
            else:
                text = " ".join(map(str, line)) if isinstance(line, list | tuple) else str(line)
            yield Notice(True, f"{name}: not run: {cut(text, REASON_LETTERS)}")


def _broken(part: Part) -> Iterator[Notice]:
    """Methods that promise plain decoding's tokens and gave others."""
    for streams in part.streams:
        for method in part.methods:
            cell = part.cell(method, streams=streams)
            if cell is not None and is_exact(cell.exactness) and cell.equal_share not in (None, 1.0):
                told = f"{share(cell.equal_share or 0.0)} of its answers equal plain decoding's"
                text = f"{method}, {part.workload}, {counted(streams, 'stream')}: promises {cell.exactness}, but {told}"
                yield Notice(True, text)


def _unmeasured(given: Given, part: Part) -> Iterator[Notice]:
    """Methods that were to run, and have no whole round."""
    measured = {(cell.method, cell.streams) for cell in given.cells if cell.workload == part.workload}
    for method in given.run.methods:
        lacking = [streams for streams in given.run.streams if (method, streams) not in measured]
        if lacking:
            at = "" if len(lacking) == len(given.run.streams) else f" at {', '.join(map(str, lacking))} streams"
            yield Notice(True, f"{method}, {part.workload}: no whole round{at}, so no figure")


def _unfinished(given: Given, part: Part) -> Iterator[Notice]:
    """Figures of fewer rounds than were asked for."""
    for streams in part.streams:
        for method in part.methods:
            cell = part.cell(method, streams=streams)
            if cell is not None and cell.rounds < given.run.rounds:
                told = f"{cell.rounds} of {counted(given.run.rounds, 'round')}"
                yield Notice(False, f"{method}, {part.workload}, {counted(streams, 'stream')}: {told} were measured")


def _sparse(part: Part) -> Iterator[Notice]:
    """Intervals that say less than they seem to."""
    for streams in part.streams:
        cells = [cell for cell in part.dynamic(streams=streams) if cell.decode_ratio is not None and cell.is_sparse]
        if cells:
            told = f"{measured(cells[0])} are too few for intervals of 95 %: these are narrower, and show no gain"
            yield Notice(False, f"{part.workload}, {counted(streams, 'stream')}: {told}")


def _unasked(given: Given, part: Part) -> Iterator[Notice]:
    """Methods that may lose something, and ran all layers: why, or that no exit held for these requests."""
    for streams in part.streams:
        for cell in part.dynamic(streams=streams):
            if cell.note is not None:
                at = f"{cell.method}, {part.workload}, {counted(streams, 'stream')}"
                yield Notice(False, f"{at}: {RAN_AS_FULL}: {cut(cell.note, REASON_LETTERS)}")
    for cell in part.dynamic():
        if cell.note is not None:
            continue
        writes = any("little" in name or name == "draft_model" for name in given.run.methods.get(cell.method, {}))
        if shape_of(cell.exactness) in (SHAPES["calibrated"], SHAPES["unchecked"]) and not (writes or cell.exit_counts):
            told = "no exit was asked for any token, so all layers ran, as in mode full"
            yield Notice(False, f"{cell.method}, {part.workload}: {told}")


def _hidden(part: Part) -> Iterator[Notice]:
    for count, noun in (
        (part.num_hidden_methods, "method"),
        (part.num_hidden_tasks, "task"),
        (part.num_hidden_streams, "number of streams"),
    ):
        if count:
            told = counted(count, noun, noun.replace("number", "numbers") if " " in noun else "")
            yield Notice(False, f"{part.workload}: {told} more are in the file and not shown here")


def _busy(provenance: Mapping[str, object]) -> Iterator[Notice]:
    """A machine that had other work as the run began."""
    for key in ("load_at_start", "load"):
        value = provenance.get(key)
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, int | float) and first > QUIET_LOAD:
            text = f"The machine was not quiet: a load average of {first:g} at the start. Measure again."
            yield Notice(False, text)
            return


def _names(items: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(items) - MOST_NAMES:,} more" if len(items) > MOST_NAMES else ""
    return ", ".join(cut(name, 60) for name in items[:MOST_NAMES]) + more
