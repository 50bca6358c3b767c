"""`offramp remove`: delete a fetched model, or weights prepared from one."""

from __future__ import annotations

from typing import Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import counted, mebibytes, say
from offramp.errors import InvalidRequestError


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name or source, as `offramp list` shows it; with --prepared also a path."),
    ] = None,
    prepared: Annotated[
        bool,
        typer.Option(
            "--prepared", help="Delete only weights prepared from NAME, or from models that have gone or changed."
        ),
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Delete a model from the cache, with the weights prepared from it.

    Prepared weights are made again when their model is next used.
    """
    if name is None and not prepared:
        hint = "`offramp list` shows the names; --prepared alone deletes what was prepared from models that are gone"
        raise InvalidRequestError("remove takes a NAME", hint=hint)

    from offramp.model.model_cache import default_cache
    from offramp.model.sources import locate, remove
    from offramp.native.prepared_folder import PREPARED, prepared_files, remove_prepared

    files = prepared_files(default_cache() / PREPARED)
    if name is None:
        doomed = [file for file in files if file.lost]
    else:
        path = locate(name)
        doomed = [file for file in files if file.made_from(path)]
    freed = 0 if prepared or name is None else remove(name)
    freed += remove_prepared(doomed)
    what = counted(len(doomed), "prepared file") if prepared else name
    say(f"removed {what}, {mebibytes(freed)} freed")
