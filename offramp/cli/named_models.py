"""The options of `offramp serve` that each of its models may have of its own, on the command line or in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import InvalidRequestError
from offramp.params import refused, shown

if TYPE_CHECKING:
    from offramp.llm.model_flags import ModelFlags
    from offramp.llm.starting import ModelStart

NAMED = re.compile(r"(?P<name>[^=]+)=(?P<model>[^=].*)", re.DOTALL)
FILE_HINT = 'write {"NAME": {"model": "smollm2-135m", "draft": "off"}, ...}, options named as the flags are'


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model to serve, under its names."""

    names: tuple[str, ...]
    start: ModelStart
    flags: ModelFlags


def named_models(
    models: Sequence[str], config: Path | None, served_names: Sequence[str], flags: ModelFlags
) -> list[NamedModel]:
    """The models of the command line, MODEL or NAME=MODEL, then those of a file; `flags` are what they have in common.

    Raises InvalidRequestError: for names given twice, and what can't be honoured.
    """
    named = [_split(each) for each in models]
    own = [] if config is None else _of_file(config, flags)
    if served_names:
        if len(named) != 1 or own:
            hint = "write NAME=MODEL for each of several models"
            raise InvalidRequestError("--served-model-name is for one MODEL", hint=hint, param="served_model_name")
        named = [(tuple(served_names), named[0][1])]
    packs = {"exits": flags.exits, "drafter": flags.drafter, "little_calibration": flags.little_calibration}
    given = next((name for name, pack in packs.items() if pack not in (None, "off")), None)
    if given is not None and len(named) + len(own) > 1:
        hint = "it belongs to one model: write it into a file for --models-config"
        raise InvalidRequestError(f"--{given.replace('_', '-')} is for one MODEL", hint=hint, param=given)
    found = [NamedModel(names, flags.start(model), flags) for names, model in named] + own
    names = [name for each in found for name in each.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError(f"two models have the name {shown(twice)}", hint="give each its own: NAME=MODEL")
    return found


def _split(text: str) -> tuple[tuple[str, ...], str]:
    """NAME=MODEL. A path that is there is a model whatever its name; pypi:package==1.0 has no name either."""
    match = NAMED.fullmatch(text)
    if match is None or Path(text).exists() or match["name"].startswith(("pypi:", "hf:")):
        return (text,), text
    return (match["name"],), match["model"]


def _of_file(path: Path, flags: ModelFlags) -> list[NamedModel]:
    """The models of a JSON file: their names, and an object of options each."""
    from offramp.serve.strict_json import parse_object

    try:
        content = parse_object(path.read_bytes())
    except OSError as error:
        message = f"can't read {path}: {error.strerror}"
        raise InvalidRequestError(message, hint="give the path of a JSON file", param="models_config") from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error.message}", hint=FILE_HINT, param="models_config") from None
    models = []
    for name, options in content.items():
        try:
            models.append(_of_options(name, options, flags))
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"{path}: {name!r}: {error.message}", hint=error.hint, param=error.param
            ) from None
    if not models:
        raise InvalidRequestError(f"{path} names no models", hint=FILE_HINT, param="models_config")
    return models


def _of_options(name: str, options: object, flags: ModelFlags) -> NamedModel:
    if not isinstance(options, Mapping):
        raise InvalidRequestError("the options are no object", hint=FILE_HINT)
    model, aliases = options.get("model"), options.get("aliases", [])
    if not isinstance(model, str):
        raise refused("model", model, "a path, a short name, pypi:package or hf:org/name")
    if not isinstance(aliases, list) or not all(isinstance(each, str) and each for each in aliases):
        raise refused("aliases", aliases, "a list of further names")
    given = {key: value for key, value in options.items() if key not in ("model", "aliases")}
    flags = flags.replaced(given, beside="model, aliases, ")
    return NamedModel((name, *aliases), flags.start(model), flags)
