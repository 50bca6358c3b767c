"""`offramp bench run`: ways to run one model, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import counted, say
from offramp.cli.streams import put
from offramp.cli.workloads import shipped_prompts, tell_refused
from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import check_int, refused

if TYPE_CHECKING:
    from offramp.bench.results.cells import Cell
    from offramp.bench.results.lines import Line
    from offramp.bench.run.method import Method
    from offramp.bench.workloads.item import Workload
    from offramp.llm.model_flags import ModelFlags

SHIPPED = "shipped"
LEAST_SEQS = 16
MOST_STREAMS = 256
MOST_ROUNDS = 1000
MOST_TOKENS = 1 << 20
OFF = "off"
OWN = {
    "exits": "early_exit",
    "drafter": "eagle",
    "draft_model": "model",
    "risk": "calibrated",
    "exit_threshold": "unchecked",
}
"""Options of the run, and the method that each brings where none are named."""


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")
    ] = options.DEFAULT_MODEL,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help=f'Lines of JSON with "prompt" or "messages" each; can be repeated; {SHIPPED} is the set that comes '
            "with the package.",
            show_default=SHIPPED,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="auto, ngram, suffix, eagle, early_exit, model, calibrated, unchecked, full, or one of your own as "
            "NAME:option=value,option=value with options of `offramp serve`; can be repeated. Plain decoding is "
            "always there.",
            show_default="auto, and what the packs and settings below are for",
        ),
    ] = None,
    streams: Annotated[str, typer.Option(help="Requests at a time, several joined by commas.")] = "1",
    rounds: Annotated[int, typer.Option(help="Turns of each method.")] = 5,
    limit: Annotated[int | None, typer.Option(help="Prompts of each file at most.", show_default="all")] = None,
    max_tokens: Annotated[int, typer.Option(help="Of an answer.")] = 128,
    raw: Annotated[bool, typer.Option("--raw", help="Take prompts as they are, without the chat template.")] = False,
    perplexity: Annotated[
        bool, typer.Option("--perplexity", help="Judge the weights too: perplexity of the references.")
    ] = False,
    exits: options.Exits = None,
    drafter: options.DrafterPack = None,
    draft_model: options.DraftModel = None,
    risk: options.Risk = None,
    exit_threshold: options.ExitThreshold = None,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Results; those of the same run are gone on with.")
    ] = Path("results.jsonl"),
    debug: options.Debug = False,
) -> None:
    """Measure methods side by side on your prompts: speed, memory, drafts, exits, and how good the answers are.

    Each has a process of its own, and all take turns. A table on stderr, one line of JSON for each figure on stdout,
    every answer in the file. Ctrl-C stops; the same command then goes on.
    """
    from offramp.bench.run.method import methods_of
    from offramp.bench.run.rounds import Plan, run_rounds
    from offramp.bench.workloads.read import check_streams
    from offramp.cli.bench_progress import progress
    from offramp.llm.model_flags import ModelFlags

    check_int("rounds", rounds, 1, MOST_ROUNDS)
    check_int("max_tokens", max_tokens, 1, MOST_TOKENS)
    at_once = _streams(streams)
    base = ModelFlags(
        max_model_len=max_context,
        max_num_seqs=str(max(LEAST_SEQS, *at_once)),
        exits=exits,
        risk=risk,
        exit_threshold=exit_threshold,
        draft_model=draft_model,
        drafter=drafter,
        weights=weights,
        kv=kv,
        kv_memory=kv_memory,
        threads=threads,
    )
    methods = methods_of(method or _default_methods(base), base)
    _check_used(base, methods)
    workloads = _workloads(workload or [SHIPPED], limit, raw=raw)
    for each in workloads:
        check_streams(each, max(at_once))
    plan = Plan(
        model=model,
        methods=methods,
        workloads=workloads,
        streams=at_once,
        rounds=rounds,
        max_tokens=max_tokens,
        perplexity=perplexity,
    )
    try:
        with progress() as teller:
            lines = run_rounds(plan, output, teller)
    except KeyboardInterrupt:
        say(f"stopped; the same command goes on with {output}")
        raise
    _show(lines, output)


def _show(lines: Sequence[Line], output: Path) -> None:
    """The figures, and what failed; an error if a method did not get to its end."""
    from offramp.bench.results.cells import ALL, RAN_AS_FULL
    from offramp.bench.results.lines import FailureLine
    from offramp.bench.results.summary import cells
    from offramp.cli.bench_table import print_cells

    figures = cells(lines)
    print_cells(figures)
    for cell in figures:
        put(json.dumps(asdict(cell), allow_nan=False) + "\n")
    if any(cell.is_sparse and cell.decode_ratio is not None and cell.task == ALL for cell in figures):
        say("note: too few prompts and rounds for intervals of 95 %: those above are narrower, and show no gain")
    for note, who in _ran_as_full(figures).items():
        say(f"note: {', '.join(who)} {RAN_AS_FULL}: {note}")
    failures = [line for line in lines if isinstance(line, FailureLine)]
    items = {(line.workload, line.item) for line in failures if line.item is not None}
    if items:
        first = next(line for line in failures if line.item is not None)
        say(f"note: {counted(len(items), 'prompt')} could not be answered, such as {first.item}: {first.reason}")
    dropped = {line.method: line.reason for line in failures if line.item is None}
    if dropped:
        reasons = "; ".join(dropped.values())
        hint = f"they stay out of {output}: leave them out, or write to another file to try again"
        raise ResourceError(f"{', '.join(dropped)} did not get to the end: {reasons}", hint=hint)


def _ran_as_full(figures: Sequence[Cell]) -> dict[str, list[str]]:
    """By the reason: the methods that kept their promise by losing nothing."""
    found: dict[str, dict[str, None]] = {}
    for cell in figures:
        if cell.note is not None:
            found.setdefault(cell.note, {})[cell.method] = None
    return {note: list(who) for note, who in found.items()}


def _streams(text: str) -> tuple[int, ...]:
    counts = [int(part) if part.strip().isdecimal() and len(part) < 9 else 0 for part in text.split(",")]
    if not all(1 <= count <= MOST_STREAMS for count in counts) or len(set(counts)) < len(counts):
        raise refused("streams", text, f"different numbers from 1 to {MOST_STREAMS}, such as 1,4")
    return tuple(sorted(counts))


def _default_methods(base: ModelFlags) -> list[str]:
    """`auto`, and what the packs and settings that were given are for."""
    return ["auto", *(method for name, method in OWN.items() if getattr(base, name) not in (None, OFF))]


def _check_used(base: ModelFlags, methods: Sequence[Method]) -> None:
    """Refuse what no method would look at."""
    for name, by in OWN.items():
        value = getattr(base, name)
        if value not in (None, OFF) and not any(getattr(method.flags, name) == value for method in methods):
            flag = f"--{name.replace('_', '-')}"
            hint = f"leave it out, or add --method {by}"
            raise InvalidRequestError(f"{flag} {value} has nothing to do: no method uses it", hint=hint)


def _workloads(places: Sequence[str], limit: int | None, *, raw: bool) -> list[Workload]:
    """The prompts, telling of those that are left out."""
    from offramp.bench.workloads.read import read_workload

    workloads: list[Workload] = []
    for place in places:
        if place == SHIPPED:
            workload = shipped_prompts(limit, raw=raw, asked_by=f"beside --workload {SHIPPED}")
        else:
            workload = read_workload(Path(place), limit=limit, raw=raw)
        if workload.name in [other.name for other in workloads]:
            raise InvalidRequestError(f"two workloads are called {workload.name}", hint="rename one of the files")
        tell_refused(workload, place)
        if workload.unscored:
            say(f"note: {counted(len(workload.unscored), 'prompt')} of {place} not judged, for want of a reference")
        workloads.append(workload)
    return workloads
