"""`offramp remove`: delete a fetched model."""

from __future__ import annotations

from typing import Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import mebibytes, say


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or source, as `offramp list` shows it.")],
    debug: options.Debug = False,
) -> None:
    """Delete a model from the cache."""
    from offramp.model.sources import remove

    say(f"removed {name}, {mebibytes(remove(name))} freed")
