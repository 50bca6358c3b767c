"""How a model is served best on a machine, with what was measured of it: tuning writes it, a server reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Speed over that of plain decoding with its 95 % interval, from turns that alternated with those of plain."""

    ratio: float  # above 1 is faster
    low: float
    high: float
    turns: int  # of each of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it was measured, and with which version."""

    cpu: str
    num_cpus: int  # at hand
    offramp: str

    def differing(self, here: Machine) -> list[str]:
        """What is another one here, in words."""
        names = [each.name for each in fields(self) if getattr(self, each.name) != getattr(here, each.name)]
        return [f"{name} is {getattr(here, name)} here and was {getattr(self, name)}" for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was run to measure it, and when."""

    workload: str
    workload_sha256: str
    num_prompts: int
    streams: int  # requests at once
    max_tokens: int
    minutes: float  # that all of it took
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model's options. `options` are those of a served model that differ from the defaults, as they are written."""

    model: str  # as it was named
    source_hash: str  # of its tensors: what the profile holds for
    risk: float | None  # of mode calibrated; None: lossless
    options: Mapping[str, object]
    gain: Gain | None  # None: nothing beat plain decoding, which is what the options say
    machine: Machine
    trial: Trial
