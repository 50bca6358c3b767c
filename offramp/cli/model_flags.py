"""The options of `offramp serve` that each of its models may have of its own, on the command line or in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import InvalidRequestError
from offramp.params import refused, shown

if TYPE_CHECKING:
    from offramp.llm.starting import ModelStart

MULTIPLES = {"": 1, "k": 1000, "m": 1000**2, "K": 1 << 10, "M": 1 << 20}
WHEN = ("start", "demand")
NAMED = re.compile(r"(?P<name>[^=]+)=(?P<model>[^=].*)", re.DOTALL)
FILE_HINT = 'write {"NAME": {"model": "smollm2-135m", "draft": "off"}, ...}, options named as the flags are'


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """One model's options as they were written. Impossible ones raise InvalidRequestError, at the latest in `start`."""

    load: str = "start"
    max_model_len: str | int | None = None
    max_num_seqs: str | int = "16"
    max_num_batched_tokens: str | int = "512"
    mode: str = "lossless"
    exits: str | None = None
    risk: float | None = None
    exit_threshold: str | float | None = None
    exit_measure: str | None = None
    exit_predictor: str | None = None
    exit_decay: int | None = None
    exit_fill: str | None = None
    exit_batching: str | None = None
    draft: str | None = None
    max_draft: int | None = None
    draft_length: str = "goodput"
    draft_memory: str | int = "64MiB"
    draft_model: str | None = None
    drafter: str | None = None
    little_rollback: float | None = None
    little_fallback: float | None = None
    max_little: int | None = None
    little_calibration: str | None = None
    verifier: str = "exact"
    weights: str = "auto"
    kv: str = "f16"
    kv_memory: str | int | None = None
    threads: int | None = None
    tool_call_parser: str = "auto"

    def __post_init__(self) -> None:
        if self.load not in WHEN:
            raise refused("load", self.load, "start or demand")

    def start(self, model: str) -> ModelStart:
        """With what this model starts."""
        from offramp.llm.exit_settings import ExitSettings
        from offramp.llm.little_settings import LittleSettings
        from offramp.llm.serving import Serving
        from offramp.llm.starting import ModelStart

        exits = ExitSettings(
            pack=self.exits,
            risk=self.risk,
            threshold=self.exit_threshold,
            measure=self.exit_measure,
            predictor=self.exit_predictor,
            decay=self.exit_decay,
            fill=self.exit_fill,
            batching=self.exit_batching,
        )
        little = LittleSettings(
            rollback=self.little_rollback,
            fallback=self.little_fallback,
            max_run=self.max_little,
            calibration=self.little_calibration,
        )
        serving = Serving(
            mode=self.mode,
            draft=self.draft,
            draft_length=self.draft_length,
            max_draft=self.max_draft,
            draft_memory=self.draft_memory,
            draft_model=self.draft_model,
            drafter=self.drafter,
            verifier=self.verifier,
            exits=exits,
            little=little,
            max_num_seqs=whole_number("max_num_seqs", self.max_num_seqs),
            max_num_batched_tokens=whole_number("max_num_batched_tokens", self.max_num_batched_tokens),
            tool_call_parser=self.tool_call_parser,
        )
        context = None if self.max_model_len is None else whole_number("max_model_len", self.max_model_len)
        return ModelStart(
            model=model,
            serving=serving,
            weights=self.weights,
            kv=self.kv,
            kv_memory=self.kv_memory,
            threads=self.threads,
            max_context=context,
        )


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


def whole_number(name: str, text: str | int) -> int:
    """An integer as vLLM's users write it: 4096, 4k (4000) or 4K (4096)."""
    match = re.fullmatch(r"(\d{1,18})([kmKM]?)", str(text), re.ASCII)
    if match is None:
        raise refused(name, text, "an integer, also as 4k (4000) or 4K (4096)")
    return int(match[1]) * MULTIPLES[match[2]]


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
    known = {field.name: field.type for field in fields(ModelFlags)}
    given = {key: value for key, value in options.items() if key not in ("model", "aliases")}
    for key, value in given.items():
        if key not in known:
            hint = f"options of a model are model, aliases, {', '.join(known)}"
            raise InvalidRequestError(f"there is no option {shown(key)}", hint=hint)
        _check_kind(key, value, known[key])
    flags = replace(flags, **given)
    return NamedModel((name, *aliases), flags.start(model), flags)


def _check_kind(name: str, value: object, kinds: object) -> None:
    """Refuse what is of another kind than the field; `kinds` is the field's annotation, as text."""
    kind = {bool: "bool", int: "int", float: "float", str: "str", type(None): "None"}.get(type(value))
    allowed = str(kinds).split(" | ")
    if kind not in allowed and not (kind == "int" and "float" in allowed):
        wanted = {"str": "a text", "int": "an integer", "float": "a number", "None": "null"}
        raise refused(name, value, " or ".join(wanted[each] for each in allowed))
