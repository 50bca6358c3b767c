"""The profile that `offramp serve` takes: its model and options, under those of the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from offramp.cli.messages import say
from offramp.cli.named_models import NamedModel, named_models
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.llm.model_flags import ModelFlags

PARAM = "profile"


def given_options(context: typer.Context) -> set[str]:
    """The options that were written on the command line, by Python's names."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def profiled_models(
    path: Path,
    models: Sequence[str],
    config: Path | None,
    served_names: Sequence[str],
    flags: ModelFlags,
    given: Collection[str],
) -> list[NamedModel]:
    """The one model to serve, as a profile says where the command line does not; `given` are the flags that count.

    Tells in a line what is not as it was measured. Raises InvalidRequestError for several models, for a profile that
    can't be honoured, and later, when it is loaded, for another model than the profile's.
    """
    if config is not None or len(models) > 1:
        hint = "serve it alone, or write the profile's options into a file for --models-config"
        raise InvalidRequestError("--profile is for one MODEL", hint=hint, param=PARAM)

    from offramp.llm.profile_file import read_profile, this_machine

    profile = read_profile(path)
    differing = profile.machine.differing(this_machine())
    if differing:
        say(f"warning: {path} was not measured here: {', '.join(differing)}; `offramp tune` measures anew")
    own = {name: value for name, value in profile.options.items() if name not in given}
    try:
        [named] = named_models(list(models) or [profile.model], None, served_names, flags.replaced(own))
    except InvalidRequestError as error:
        told = f"; {', '.join(own)} came from {path}, and flags win over that" if own else ""
        raise InvalidRequestError(error.message, hint=f"{error.hint}{told}", param=error.param) from None
    return [replace(named, start=replace(named.start, source_hash=profile.source_hash))]
