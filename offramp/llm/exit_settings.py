"""Early exits as an engine is started with them: the pack, the risk of `calibrated`, raw settings of `unchecked`.

All are checked before anything is loaded; what only the pack or the model can tell is checked with them (`exits.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from offramp.engine.exit_points import ExitBatching
from offramp.errors import InvalidRequestError
from offramp.exits.certificate import CertifiedEntry
from offramp.exits.measures import MEASURES
from offramp.exits.policy import Fill
from offramp.exits.thresholds import NEVER
from offramp.model.shipped import pack_folder
from offramp.params import check_choice, check_int, check_number, refused, shown

LITERAL: ExitBatching = "literal"
BATCHINGS = tuple(name for name in get_args(ExitBatching) if name != LITERAL)
"""The literal barrier makes tokens depend on the batch: it is for benchmarks, which make an `Engine` of their own."""

MAX_DECAY = 1 << 20
DEFAULT_MEASURE = "top_probability"
PREDICTORS = ("pack", "similarity")

AdaptiveKind = Literal["beta", "rate", "depth", "queue"]
BOUNDS: Mapping[AdaptiveKind, tuple[float, float]] = {
    "beta": (0.0, 1.0),
    "rate": (0.0, 1.0),
    "depth": (1.0, 1e6),
    "queue": (0.0, 1e6),
}
"""Of the targets: how likely full depth agrees, share of tokens that leave, mean layers, requests that wait."""

THRESHOLD_HINT = (
    "a number from 0 to 2 for all exit points; layer:number, several joined by commas, for some; or an adaptive one: "
    "beta:0.4, rate:0.5, depth:12, queue:4"
)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A threshold that learns while it runs, towards a target."""

    kind: AdaptiveKind
    target: float


Levels = Mapping[int | None, float]
"""Thresholds by exit point; None: all that are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitSettings:
    """Impossible settings raise InvalidRequestError; whether there is a pack for them, `check_pack` says."""

    pack: str | Path | None = None
    risk: float | None = None  # of calibrated requests that name none
    threshold: float | Mapping[int, float] | str | None = None
    measure: str | None = None
    predictor: str | None = None  # whose, and its threshold: "pack:0.5"
    decay: int | None = None  # output tokens over which thresholds fall
    fill: str | None = None
    batching: str | None = None

    def __post_init__(self) -> None:
        if self.pack is not None:
            _check_folder(self.pack)
        if self.risk is not None:
            check_number("risk", self.risk, 0.0, 1.0, open_low=True, open_high=True)
        if self.measure is not None:
            check_choice("exit_measure", self.measure, MEASURES)
        if self.fill is not None:
            check_choice("exit_fill", self.fill, get_args(Fill))
        if self.batching is not None:
            check_choice("exit_batching", self.batching, BATCHINGS)
        check_int("exit_decay", self.decay, 1, MAX_DECAY, optional=True)
        rule, _ = self.rule, self.gate  # parsed, and so checked
        if rule is None:
            self._check_alone()
        elif isinstance(rule, Adaptive):
            self._check_adaptive(rule)

    @property
    def rule(self) -> Levels | Adaptive | None:
        """What the raw threshold says; None: there is none, and no mode `unchecked`."""
        return None if self.threshold is None else parse_threshold(self.threshold)

    @property
    def gate(self) -> tuple[str, float] | None:
        """Which predictor, and its threshold."""
        return None if self.predictor is None else parse_predictor(self.predictor)

    def check_pack(self) -> None:
        """Refuse settings of a pack where there is none."""
        for each in fields(self):
            if self.pack is None and getattr(self, each.name) is not None:
                raise _alone(each.name, "exits", "name an exit pack, or leave it out")

    def _check_alone(self) -> None:
        """Refuse raw settings without a threshold, which nobody would look at."""
        for name in ("measure", "predictor", "decay", "fill"):
            if getattr(self, name) is not None:
                raise _alone(name, "exit_threshold", "it is part of mode unchecked; calibrations have their own")

    def _check_adaptive(self, rule: Adaptive) -> None:
        if self.decay is not None:
            hint = "leave exit_decay out: adaptive thresholds find their own level"
            message = f"exit_decay={self.decay} beside exit_threshold={shown(self.threshold)}"
            raise InvalidRequestError(message, hint=hint, param="exit_decay")
        if rule.kind == "beta" and self.fill == "propagate":
            hint = "use exit_fill=deferred, where skipped layers run later and say what full depth would have said"
            message = f"exit_threshold={shown(self.threshold)} learns nothing under exit_fill='propagate'"
            raise InvalidRequestError(message, hint=hint, param="exit_threshold")


NO_EXITS = ExitSettings()


def batching_of(settings: ExitSettings, entries: Iterable[CertifiedEntry]) -> ExitBatching:
    """As asked for; else as these entries were measured, if all in the same way; else `compact`."""
    found = {settings.batching} if settings.batching else {entry.circumstances.batching for entry in entries}
    [only] = found if len(found) == 1 else {BATCHINGS[0]}
    return next(known for known in BATCHINGS if known == only)


def _check_folder(folder: object) -> None:
    if not isinstance(folder, str | Path) or not folder:
        raise refused("exits", folder, "the folder of an exit pack, or a shipped one's name")
    try:
        found = pack_folder("exits", folder).is_dir()
    except OSError:  # no name that a folder could have
        found = False
    if not found:
        hint = "a pack is a folder with config.json and exits.safetensors; `offramp train exits` makes one"
        raise InvalidRequestError(f"exits={shown(str(folder))} is no folder", hint=hint, param="exits")


def option(name: str) -> str:
    """A setting's name as callers know it."""
    return {"pack": "exits", "risk": "risk"}.get(name, f"exit_{name}")


def parse_threshold(value: object) -> Levels | Adaptive:
    """A number, numbers by exit point, or their text as on the command line. Raises InvalidRequestError."""
    if isinstance(value, Mapping):
        return _levels(value)
    if not isinstance(value, str):
        check_number("exit_threshold", value, 0.0, NEVER)
        return {None: float(value)}  # type: ignore[arg-type]
    name, colon, target = value.partition(":")
    for kind, (low, high) in BOUNDS.items():
        if name == kind:
            number = _number("exit_threshold", value, target, THRESHOLD_HINT)
            if not low <= number <= high:
                raise refused("exit_threshold", value, f"{kind}:number, the number from {low:g} to {high:g}")
            return Adaptive(kind, number)
    if colon:
        return _levels(_by_layer(value))
    return parse_threshold(_number("exit_threshold", value, value, THRESHOLD_HINT))


def parse_predictor(value: object) -> tuple[str, float]:
    """`pack:0.5` or `similarity:0.95`. Raises InvalidRequestError."""
    wanted = "a predictor and the least score, 0 to 1, with which a head is asked: pack:0.5, or similarity:0.95"
    name, _, text = value.partition(":") if isinstance(value, str) else ("", "", "")
    if name not in PREDICTORS:
        raise refused("exit_predictor", value, wanted)
    score = _number("exit_predictor", value, text, wanted)
    if not 0.0 <= score <= 1.0:
        raise refused("exit_predictor", value, wanted)
    return name, score


def _levels(given: Mapping[int, float]) -> Levels:
    """By exit point."""
    if not given:
        raise refused("exit_threshold", given, THRESHOLD_HINT)
    for layer, level in given.items():
        if isinstance(layer, bool) or not isinstance(layer, int) or layer < 1:
            raise refused("exit_threshold", given, "layers from 1 as keys, those of the pack")
        check_number("exit_threshold", level, 0.0, NEVER)
    return {layer: float(level) for layer, level in given.items()}


def _by_layer(text: str) -> dict[int, float]:
    """6:0.9,12:0.8"""
    levels: dict[int, float] = {}
    for part in text.split(","):
        layer, _, level = part.strip().partition(":")
        if not (layer.isascii() and layer.isdecimal() and len(layer) < 9) or int(layer) in levels:
            raise refused("exit_threshold", text, THRESHOLD_HINT)
        levels[int(layer)] = _number("exit_threshold", text, level, THRESHOLD_HINT)
    return levels


def _number(name: str, value: object, text: str, wanted: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refused(name, value, wanted) from None


def _alone(name: str, needs: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"{option(name)} needs {needs}", hint=hint, param=option(name))
