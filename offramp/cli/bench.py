"""`offramp bench`: measurements on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli import bench_run, bench_serve, options
from offramp.cli.messages import say
from offramp.cli.streams import put
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.bench.steps import StepTime
    from offramp.llm.loading import LoadedModel

ROW_COUNTS = "1,2,4,8,16,32"

app = typer.Typer(help="Measure what things cost on this machine.", no_args_is_help=True, rich_markup_mode=None)


app.command("run")(bench_run.command)
app.command("serve")(bench_serve.command)


@app.command("step")
def step(
    model: options.Model = options.DEFAULT_MODEL,
    rows: Annotated[str, typer.Option(help="Numbers of rows, separated by commas.")] = ROW_COUNTS,
    context: Annotated[int, typer.Option(help="Tokens before each row.")] = 256,
    seconds: Annotated[float, typer.Option(help="Time for each cell of the table.")] = 0.15,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    threads: options.Threads = None,
    debug: options.Debug = False,
) -> None:
    """Milliseconds of one step by rows and layers, measured and as the cost model predicts them.

    A table on stderr, one line of JSON on stdout.
    """
    counts = _row_counts(rows)
    if context < 1:
        raise InvalidRequestError(f"--context {context} is impossible", hint="it takes a number above 0")
    if not 0 < seconds <= 10:
        raise InvalidRequestError(f"--seconds {seconds} is impossible", hint="it takes a number up to 10")

    from offramp.bench.provenance import provenance
    from offramp.bench.steps import measure_steps
    from offramp.llm.costs import COSTS, load_costs
    from offramp.model.model_cache import default_cache

    loaded = _load(model, weights=weights, kv=kv, threads=threads, context=context, most_rows=max(counts))
    costs = load_costs(loaded, default_cache() / COSTS)
    times = list(measure_steps(loaded.executor, costs, row_counts=counts, context=context, seconds_per_cell=seconds))
    facts = _facts(loaded) | {"context": context}
    print_table(
        times, f"{loaded.name}: median (predicted) ms of a step, {facts['threads']} threads, {facts['kernels']}"
    )
    result = {"benchmark": "step", **facts, **provenance(), "times": [asdict(cell) for cell in times]}
    put(json.dumps(result) + "\n")


def _load(model: str, *, weights: str, kv: str, threads: int | None, context: int, most_rows: int) -> LoadedModel:
    """The model with K/V memory for so many rows behind one context, and for measuring costs."""
    from offramp.core import PAGE_SIZE
    from offramp.engine.measure import PROBE_PAGES
    from offramp.engine.probe import pages_for_rows
    from offramp.llm.loading import load_model
    from offramp.model.sources import resolve
    from offramp.native.converted import open_model
    from offramp.native.kv import kv_type, page_bytes

    page_type = kv_type(kv)
    config = open_model(resolve(model)).config
    if context >= config.max_context:
        raise InvalidRequestError(f"--context {context} exceeds the model's", hint=f"it has {config.max_context}")
    num_pages = max(pages_for_rows(context) + pages_for_rows(most_rows), PROBE_PAGES)
    return load_model(
        model,
        weights=weights,
        kv=kv,
        kv_memory=num_pages * page_bytes(config, page_type),
        max_context=min(config.max_context, num_pages * PAGE_SIZE),
        threads=threads,
    )


def _facts(loaded: LoadedModel) -> dict[str, object]:
    """What was measured, as JSON values."""
    from offramp.native import NativeExecutor

    executor = loaded.executor
    assert isinstance(executor, NativeExecutor)
    return {
        "model": loaded.name,
        "source_hash": loaded.source_hash,
        "weights": dict(loaded.formats),
        "kv": executor.kv,
        "threads": executor.threads,
        "kernels": executor.path,
    }


def print_table(times: Sequence[StepTime], title: str) -> None:
    """Row counts down, layer ranges and the head across, on stderr; predictions for all layers and the head."""
    from rich.console import Console
    from rich.table import Table

    parts = list(dict.fromkeys(cell.part for cell in times))
    table = Table(title=title)
    table.add_column("rows", justify="right")
    for part in parts:
        table.add_column(part if part == "head" else f"layers {part}", justify="right")
    cells = {(cell.rows, cell.part): _shown(cell, cell.part in (parts[0], parts[-1])) for cell in times}
    for count in dict.fromkeys(cell.rows for cell in times):
        table.add_row(str(count), *(cells[count, part] for part in parts))
    console = Console(stderr=True)
    with console.capture() as drawn:
        console.print(table)
    say(drawn.get().rstrip())


def _shown(cell: StepTime, with_prediction: bool) -> str:
    return f"{cell.median_ms:.2f} ({cell.predicted_ms:.2f})" if with_prediction else f"{cell.median_ms:.2f}"


def _row_counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= count <= 512 for count in counts):
        raise InvalidRequestError(f"--rows {text!r} is impossible", hint=f"numbers up to 512, such as {ROW_COUNTS}")
    return sorted(set(counts))
