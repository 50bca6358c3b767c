"""A profile on disk: YAML for people to read, and to change. What it can't mean is refused by name and file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import yaml

from offramp.core.profile import Gain, Machine, Profile, Trial
from offramp.errors import InvalidRequestError, ResourceError
from offramp.llm.model_flags import ModelFlags
from offramp.llm.serving import CALIBRATED, FULL, LOSSLESS
from offramp.native.processor import processor_name
from offramp.native.threads import default_threads
from offramp.params import check_int, check_number, refused, shown
from offramp.whole_file import whole_file
from offramp.yaml_file import read_mapping

FORMAT, VERSION = "offramp-profile", 1
KEYS = ("format", "version", "model", "source_hash", "promise", "options", "gain", "machine", "trial")
HINT = "`offramp tune MODEL -o FILE` writes one"
PLAIN_TEXT = re.compile(r"[A-Za-z][\w.,/+-]*", re.ASCII)
WORDS = ("null", "true", "false")
"""Texts that YAML takes for something else."""
BEGINNING = """\
# How to serve a model, as `offramp tune` measured it. Use it so: offramp serve --profile {name}
# Options on the command line win over those here.
"""

T = TypeVar("T")


def read_profile(path: Path) -> Profile:
    """The profile in a file. Raises InvalidRequestError naming the file, and the value that can't be honoured."""
    values = read_mapping(path, hint=HINT, param="profile")
    try:
        return _profile(values)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error.message}", hint=error.hint, param=error.param) from None


def write_profile(
    path: Path, profile: Profile, *, notes: Mapping[str, str] | None = None, lost: Sequence[str] = ()
) -> None:
    """Write it whole or not at all. As comments: why an option is there (`notes`), and what was not better (`lost`).

    Raises ResourceError.
    """
    text = profile_text(profile, path.name, notes or {}, lost)
    try:
        with whole_file(path) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        hint = "free some space, or name another file"
        raise ResourceError(f"can't write {path}: {error.strerror or error}", hint=hint) from error


def check_profile_target(path: Path) -> None:
    """Refuse a place where a profile can't be written; it may take that of an earlier one, and of nothing else."""
    folder = path.absolute().parent
    if path.is_dir():
        raise InvalidRequestError(f"{path} is a folder", hint="name a file in it", param="output")
    if not os.access(folder, os.W_OK):
        message = f"{folder} is no folder that can be written"
        raise InvalidRequestError(message, hint="name another file", param="output")
    if path.exists() and not _is_profile(path):
        hint = "name another file: only a profile is replaced"
        raise InvalidRequestError(f"{path} is there, and no profile", hint=hint, param="output")


def this_machine() -> Machine:
    """The one we are on."""
    return Machine(cpu=processor_name(), num_cpus=default_threads(), offramp=version("offramp"))


def profile_text(profile: Profile, name: str, notes: Mapping[str, str], lost: Sequence[str]) -> str:
    """The file's content."""
    lines = [_comment(line) for line in BEGINNING.format(name=name).splitlines()]
    lines += [f"format: {FORMAT}", f"version: {VERSION}", f"model: {_scalar(profile.model)}"]
    lines += [f"source_hash: {_scalar(profile.source_hash)}"]
    lines += [f"promise: {LOSSLESS if profile.risk is None else _scalar(profile.risk)}", ""]
    lines += ["options:" if profile.options else "options: {}"]
    for option, value in profile.options.items():
        lines += [f"  {_comment(notes[option])}"] if option in notes else []
        lines += [f"  {option}: {_scalar(value)}"]
    if profile.gain is None:
        lines += ["", _comment("Nothing that was tried is surely faster than plain decoding."), "gain: null"]
    else:
        lines += ["", _comment("Tokens a second over those of plain decoding, with the 95 % interval.")]
        lines += _group("gain", asdict(profile.gain))
    lines += [*_group("machine", asdict(profile.machine)), *_group("trial", asdict(profile.trial))]
    if lost:
        lines += ["", _comment("What else was tried:"), *(_comment(f"  {each}") for each in lost)]
    return "\n".join(lines) + "\n"


def _group(name: str, values: Mapping[str, object]) -> list[str]:
    return [f"{name}:", *(f"  {key}: {_scalar(value)}" for key, value in values.items())]


def _comment(text: str) -> str:
    """One line, whatever names it holds."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text.rstrip())
    return line if line.startswith("#") else f"# {line}"


def _scalar(value: object) -> str:
    """A value as YAML that reads back as the same; texts without quotes where they need none."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if PLAIN_TEXT.fullmatch(text) and text not in WORDS:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True)
    return quoted.rstrip("\n")


def _profile(values: Mapping[str, object]) -> Profile:
    if values.get("format") != FORMAT:
        raise InvalidRequestError("it is no profile", hint=HINT, param="profile")
    if values.get("version") != VERSION:
        hint = "write it anew: `offramp tune MODEL -o FILE`"
        raise InvalidRequestError(f"version={shown(values.get('version'))} is not {VERSION}", hint=hint)
    _check_keys(values, KEYS, "")
    risk = _risk(values["promise"])
    return Profile(
        model=_text("model", values["model"]),
        source_hash=_text("source_hash", values["source_hash"]),
        risk=risk,
        options=_options(values["options"], risk),
        gain=None if values["gain"] is None else _read(Gain, "gain", values["gain"]),
        machine=_read(Machine, "machine", values["machine"]),
        trial=_read(Trial, "trial", values["trial"]),
    )


def _risk(promise: object) -> float | None:
    if promise == LOSSLESS:
        return None
    if isinstance(promise, str):
        raise refused("promise", promise, f"{LOSSLESS}, or a risk such as 0.05")
    check_number("promise", promise, 0.0, 1.0, open_low=True, open_high=True)
    return float(promise)  # type: ignore[arg-type]


def _options(values: object, risk: float | None) -> dict[str, object]:
    """Options of a model, each of its kind, that keep the promise."""
    if not isinstance(values, dict):
        raise refused("options", values, "a mapping of options to values")
    flags = ModelFlags().replaced(values)
    kept = flags.mode in (LOSSLESS, FULL) if risk is None else (flags.mode, flags.risk) == (CALIBRATED, risk)
    if not kept or (risk is None and flags.verifier != ModelFlags().verifier):
        promise = LOSSLESS if risk is None else f"{risk:g}"
        hint = "change the promise, or the options mode, risk and verifier"
        raise InvalidRequestError(f"the options don't keep the promise {promise}", hint=hint, param="promise")
    return values


def _read(kind: type[T], name: str, values: object) -> T:
    """A group of values: all fields of a dataclass and no others, texts not empty, numbers above 0."""
    if not isinstance(values, dict):
        raise refused(name, values, "a mapping of names to values")
    own = fields(kind)  # type: ignore[arg-type]
    _check_keys(values, [field.name for field in own], f"{name}.")
    for field in own:
        place, value = f"{name}.{field.name}", values[field.name]
        if field.type == "str":
            _text(place, value)
        elif field.type == "int":
            check_int(place, value, 1)
        else:
            check_number(place, value, 0.0, 1e9, open_low=True)
    return kind(**values)


def _check_keys(values: Mapping[str, object], names: Sequence[str], prefix: str) -> None:
    for name in values:
        if name not in names:
            raise InvalidRequestError(f"there is no {shown(prefix + name)}", hint=f"there are {', '.join(names)}")
    for name in names:
        if name not in values:
            raise InvalidRequestError(f"{prefix}{name} is missing", hint=f"needed are {', '.join(names)}")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refused(name, value, "a text")
    return value


def _is_profile(path: Path) -> bool:
    """Whether a file says that it is one, of whatever version."""
    try:
        return path.is_file() and read_mapping(path, hint=HINT).get("format") == FORMAT
    except InvalidRequestError:
        return False
