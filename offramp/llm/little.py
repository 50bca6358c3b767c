"""The little model of a loaded one: the policies under which it writes, raw and certified, and how to calibrate it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offramp.collaborate.big_little import BigLittle
from offramp.collaborate.big_little_certificate import CertifiedPair, Pair, read_pairs
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.collaborate.big_little_writer import LittleWriter
from offramp.draft.own_model import OwnModel
from offramp.errors import InvalidRequestError
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import DEFAULT_KV, DEFAULT_WEIGHTS, LoadedModel
from offramp.model.config_identity import config_identity
from offramp.native.sampling import sample_rows

CALIBRATED, UNCHECKED = "calibrated", "unchecked"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedLittle:
    """What the settings make of a loaded pair."""

    name: str  # of the little model
    raw: BigLittlePolicy | None  # of mode `unchecked`
    certified: Mapping[str, CertifiedPair]  # that fit this pair, by the names of their policies
    misfit: str | None  # why there is none, where a calibration was given

    @property
    def policies(self) -> dict[str, BigLittlePolicy]:
        """By the names that requests give."""
        policies = {name: entry.policy for name, entry in self.certified.items()}
        return policies if self.raw is None else policies | {UNCHECKED: self.raw}


def load_little(loaded: LoadedModel, settings: LittleSettings) -> LoadedLittle | None:
    """None where no little model writes. Raises OfframpError for a calibration that can't be read."""
    draft = loaded.draft
    if settings.given is None:
        return None
    assert draft is not None, "load the draft model first"
    entries = [] if settings.calibration is None else read_pairs(Path(settings.calibration))
    here = pair_of(loaded, draft)
    named: dict[str, CertifiedPair] = {}
    misfits: list[str] = []
    for entry in entries:
        try:
            entry.check_fits(here)
        except InvalidRequestError as error:
            misfits.append(error.message)
            continue
        name = f"{CALIBRATED}:{entry.risk:g}"
        named[name if name not in named else f"{name}:{len(named)}"] = entry
    if settings.calibration is not None and not named and not misfits:
        misfits.append("the calibration is empty")
    misfit = misfits[0] if misfits and not named else None
    return LoadedLittle(name=draft.name, raw=settings.policy, certified=named, misfit=misfit)


def make_little(own: OwnModel, policies: Mapping[str, BigLittlePolicy]) -> BigLittle:
    """What writes for the requests of an engine."""
    return BigLittle(LittleWriter(own, sample_rows), policies, sample_rows=sample_rows)


def pair_of(loaded: LoadedModel, draft: LoadedModel) -> Pair:
    """What a calibration of this pair holds for."""
    return Pair(
        model=loaded.source_hash,
        config=config_identity(loaded.config),
        weights=loaded.formats_in_words,
        kv=loaded.kv,
        little_model=draft.source_hash,
        little_config=config_identity(draft.config),
        little_weights=draft.formats_in_words,
        little_kv=draft.kv,
    )


def calibrate_command(loaded: LoadedModel, little: str, risk: float) -> str:
    """What makes a calibration that fits this pair."""
    words = ["offramp", "calibrate", loaded.name, "--draft-model", little, "--prompts", "FILE"]
    words += ["--risk", f"{risk:g}", "--output", "FILE"]
    if loaded.weights != DEFAULT_WEIGHTS:
        words += ["--weights", loaded.weights]
    if loaded.kv != DEFAULT_KV:
        words += ["--kv", loaded.kv]
    return shlex.join(words)
