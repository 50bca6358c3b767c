"""What a calibration promises, for which engine and requests, and the file that keeps it: `calibration.json`.

An entry holds only for the engine it was measured on: model and its config, pack, the matrices' formats, K/V type,
batching; and only for requests that draw as its calibration did, with at most as many tokens. What doesn't fit is
refused, naming the field. `Certified` is what entries of any policy have in common, whatever it is that may change
tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from offramp.errors import CorruptModelError, InvalidRequestError, ResourceError
from offramp.exits.frozen import FrozenPolicy, choice
from offramp.model.metadata import Fields, read_json
from offramp.params import SamplingParams
from offramp.whole_file import whole_file

FILE_NAME = "calibration.json"
FORMAT, VERSION = "offramp-calibration", 2
BATCHINGS = ("compact", "barrier")
AGAIN = "run `offramp calibrate` again with these settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The engine that an entry was measured on, or that is to keep it: what has to be equal, a field each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances(Running):
    """Those of early exits."""

    model: str  # hash of the source tensors
    config: str  # what is computed with them: `config_identity`
    pack: str  # the pack's identity
    weights: str  # how many matrices run in which format: "q4 210, q8 1"
    kv: str
    batching: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How tokens were drawn: everything that changes them, besides the seed."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    ignore_eos: bool = False

    @staticmethod
    def of(params: SamplingParams) -> SamplingSettings:
        """Those of a request; greedy ones are all alike in what only changes a draw."""
        named = {each.name: getattr(params, each.name) for each in fields(SamplingSettings)}
        named["top_k"] = max(0, params.top_k)  # -1 is off, too
        if params.greedy:
            named |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        return SamplingSettings(**named)

    @staticmethod
    def read(group: Fields) -> SamplingSettings:
        """From JSON. Raises CorruptModelError naming the field."""
        return SamplingSettings(
            temperature=group.number("temperature", low=0.0),
            top_k=group.integer("top_k", low=0),
            top_p=group.number("top_p", low=0.0, high=1.0),
            min_p=group.number("min_p", low=0.0, high=1.0),
            repetition_penalty=group.number("repetition_penalty", low=0.0),
            presence_penalty=group.number("presence_penalty"),
            frequency_penalty=group.number("frequency_penalty"),
            min_tokens=group.integer("min_tokens", low=0),
            ignore_eos=group.flag("ignore_eos", False),
        )

    def why_not(self, params: SamplingParams, max_tokens: int | None) -> str | None:
        """Why answers drawn so, of at most so many tokens, say nothing of a request, naming the field; None: they do.

        `max_tokens` None is up to the context's end.
        """
        asked = asdict(SamplingSettings.of(params))
        for name, measured in asdict(self).items():
            if asked[name] != measured:
                return f"{name}={asked[name]:g} differs from the calibration's {measured:g}"
        if params.logit_bias:
            return "logit_bias was not part of the calibration"
        if max_tokens is not None and (params.max_tokens is None or params.max_tokens > max_tokens):
            asked_for = "the rest of the context" if params.max_tokens is None else params.max_tokens
            return f"max_tokens={asked_for} is above the calibration's {max_tokens}"
        return None

    def __str__(self) -> str:
        """The temperature, and what else is not off."""
        off = asdict(SamplingSettings())
        named = {name: value for name, value in asdict(self).items() if value != off[name]}
        return ", ".join(f"{name}={value:g}" for name, value in ({"temperature": self.temperature} | named).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the calibration prompts said of a setting."""

    num_prompts: int
    mean_loss: float
    p_value: float
    depth: float  # mean layers a token
    gain: float  # decoding speed over that of full depth


class Policy(Protocol):
    """What was frozen."""

    def fields(self) -> dict[str, object]:
        """As JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """Under this policy the mean loss of a prompt is at most `risk`, with confidence 1 - delta over the calibration."""

    risk: float
    delta: float
    loss: str  # how a prompt's loss is measured, by its name in `offramp calibrate`
    policy: Policy
    circumstances: Running
    sampling: SamplingSettings
    max_tokens: int
    measured: Measured

    def check_fits(self, running: Running) -> None:
        """Raises InvalidRequestError naming the first field in which the running engine differs."""
        assert type(running) is type(self.circumstances), "circumstances of one kind"
        for name, wanted in asdict(self.circumstances).items():
            found = getattr(running, name)
            if found != wanted:
                raise InvalidRequestError(
                    f"the calibration does not fit: {name} is {found!r}, it was measured with {wanted!r}",
                    hint=AGAIN,
                    param="calibration",
                )

    def why_not(self, params: SamplingParams) -> str | None:
        """Why a request is outside the promise and runs all layers, naming the field; None: it is inside."""
        return self.sampling.why_not(params, self.max_tokens)

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal entry."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("circumstances", "sampling", "measured"):
            named[name] = asdict(named[name])
        return {**named, "policy": self.policy.fields()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedEntry(Certified):
    """A certified policy of early exits."""

    policy: FrozenPolicy
    circumstances: Circumstances

    @staticmethod
    def read(entry: Fields) -> CertifiedEntry:
        """From JSON. Raises CorruptModelError naming the field."""
        only(entry, {each.name for each in fields(CertifiedEntry)})
        return CertifiedEntry(
            policy=FrozenPolicy.read(group(entry, "policy", FrozenPolicy)),
            circumstances=_circumstances(group(entry, "circumstances", Circumstances)),
            **common_fields(entry),
        )


Entry = TypeVar("Entry", bound=Certified)


def choose(entries: Sequence[Entry], risk: float) -> Entry | None:
    """The fastest entry whose risk is at most the one asked for; None if each is slower than full depth.

    Raises InvalidRequestError when nothing was certified at that risk.
    """
    within = [entry for entry in entries if entry.risk <= risk]
    if not within:
        known = ", ".join(f"{each:g}" for each in sorted({entry.risk for entry in entries})) or "none"
        raise InvalidRequestError(
            f"risk={risk:g} is not certified", hint=f"certified risks: {known}; calibrate for a lower one", param="risk"
        )
    best = max(within, key=lambda entry: (entry.measured.gain, -entry.risk))
    return best if best.measured.gain > 1.0 else None


def write_calibration(
    path: Path, entries: Sequence[Certified], provenance: Mapping[str, object], *, kind: str = FORMAT
) -> None:
    """Keep entries, whole or not at all; `provenance` says what they were measured on. Raises ResourceError."""
    content = {"format": kind, "version": VERSION, "provenance": dict(provenance)}
    text = json.dumps({**content, "entries": [entry.fields() for entry in entries]}, indent=1, allow_nan=False)
    try:
        with whole_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(f"can't write {path}: {reason}", hint="check the folder and the disk") from error


def read_calibration(path: Path) -> list[CertifiedEntry]:
    """The entries of a file. Raises ModelNotFoundError if there is none, CorruptModelError naming the field."""
    return [CertifiedEntry.read(entry) for entry in read_entries(path, FORMAT)]


def read_entries(path: Path, kind: str) -> list[Fields]:
    """The entries of a calibration of this kind, not looked at yet. Raises as `read_calibration` does."""
    content = read_json(path)
    if content.text("format") != kind:
        raise content.error("format", kind)
    if content.integer("version") != VERSION:
        raise content.error("version", f"{VERSION}; another version of offramp wrote the file")
    only(content, {"format", "version", "provenance", "entries"})
    entries = content.values.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise content.error("entries", "a list of objects")
    return [Fields(entry, f"{path.name}: entry {n}") for n, entry in enumerate(entries)]


def common_fields(entry: Fields) -> dict[str, Any]:
    """What entries of all kinds have, read and checked, by the names of `Certified`."""
    delta = _inside(entry, "delta")
    return {
        "risk": _inside(entry, "risk"),
        "delta": delta,
        "loss": entry.text("loss"),
        "sampling": SamplingSettings.read(group(entry, "sampling", SamplingSettings)),
        "max_tokens": entry.integer("max_tokens"),
        "measured": _measured(group(entry, "measured", Measured), delta),
    }


def _circumstances(found: Fields) -> Circumstances:
    names = ("model", "config", "pack", "weights", "kv")
    return Circumstances(**{name: found.text(name) for name in names}, batching=choice(found, "batching", BATCHINGS))


def _measured(found: Fields, delta: float) -> Measured:
    return Measured(
        num_prompts=found.integer("num_prompts"),
        mean_loss=found.number("mean_loss", low=0.0, high=1.0),
        p_value=found.number("p_value", low=0.0, high=delta),  # above delta nothing was certified
        depth=found.number("depth", low=0.0),
        gain=found.number("gain", low=0.0),
    )


def _inside(entry: Fields, name: str) -> float:
    """A number in (0, 1)."""
    value = entry.number(name)
    if not 0 < value < 1:
        raise entry.error(name, "a number in (0, 1)")
    return value


def group(entry: Fields, name: str, kind: type) -> Fields:
    """An object with the fields of a dataclass, and no others."""
    found = entry.group(name)
    if found is None:
        raise entry.error(name, "an object")
    only(found, {each.name for each in fields(kind)})
    return found


def only(found: Fields, known: set[str]) -> None:
    """Refuse fields that nobody would honour."""
    for name in found.values:
        if name not in known:
            raise CorruptModelError(f"{found.where}: field {name!r} is unknown", hint=AGAIN)
