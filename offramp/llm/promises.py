"""How an engine keeps each mode: the policies that it has, and the one that a request gets, if any.

Policies are those of exits, or those under which a little model writes; an engine has one kind. A calibrated request
gets one certified policy for its life, chosen from its risk and its settings, never from its text. One that its
calibration does not cover gets the model's own tokens at full depth, and its report says why.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offramp.collaborate.big_little_certificate import CertifiedPair
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.core import FULL_DEPTH, ExitParams, SamplingParams
from offramp.engine.exit_points import ExitBatching
from offramp.errors import InvalidRequestError
from offramp.exits.certificate import Certified, CertifiedEntry, Circumstances, SamplingSettings, choose
from offramp.exits.policy import ExitPolicy
from offramp.llm.exit_settings import batching_of
from offramp.llm.exits import LoadedExits
from offramp.llm.little import calibrate_command as calibrate_pair_command
from offramp.llm.little import load_little
from offramp.llm.loading import DEFAULT_KV, DEFAULT_WEIGHTS, LoadedModel
from offramp.llm.serving import CALIBRATED, EARLY, FULL, LOSSLESS, UNCHECKED, Execution, Serving
from offramp.llm.unchecked import unchecked_policy
from offramp.model.config import LongRopeScaling
from offramp.model.config_identity import config_identity
from offramp.model.shipped import is_shipped
from offramp.params import shown

log = logging.getLogger("offramp")

EXAMPLE_RISK = 0.05
"""In hints, where nobody asked for another."""
CALIBRATED_BATCHING: ExitBatching = "compact"
"""Of `offramp calibrate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The mode that a request runs in, and what its report tells of it."""

    mode: str
    exits: ExitParams = FULL_DEPTH
    reason: str | None = None  # why the mode is not the one that was asked for
    risk: float | None = None  # that the policy is certified for
    pack: str | None = None  # by name
    big_little: str | None = None  # the policy under which a little model writes
    little: str | None = None  # that model, by name


class Promises:
    """Those of one engine, or of several with the same model and settings.

    Raises InvalidRequestError if the settings' mode, or their risk, can't be kept.
    """

    def __init__(self, loaded: LoadedModel, serving: Serving) -> None:
        settings = serving.exits
        assert settings.pack is None or loaded.exits is not None, "load the pack first"
        self._exits = None if settings.pack is None else loaded.exits
        self._settings = settings
        self._mode = serving.mode
        self._loaded = loaded
        self._batching = batching_of(settings, () if self._exits is None else self._exits.entries)
        self._little = load_little(loaded, serving.little)
        self._certified: Mapping[str, Certified]
        if self._little is None:
            self._certified, self._misfit = _fitting(loaded, self._exits, self._batching)
        else:
            self._certified, self._misfit = self._little.certified, self._little.misfit
        if settings.risk is not None:
            self._entries_for(settings.risk)

    @property
    def batching(self) -> ExitBatching:
        """How the engine batches exits."""
        return self._batching

    @property
    def exit_layers(self) -> tuple[int, ...]:
        """Depths from which tokens may come, of requests with exits; none without a pack."""
        config = None if self._exits is None else self._exits.pack.config
        return () if config is None else (*config.layers, config.num_layers)

    @property
    def risks(self) -> tuple[float, ...]:
        """Those that are certified for this engine, rising."""
        return tuple(sorted({entry.risk for entry in self._certified.values()}))

    @property
    def identity(self) -> str:
        """Of what exits or a little model may change in answers; empty without both."""
        if self._little is not None:
            return f" {self._little.name} {self._little.policies}"
        if self._exits is None:
            return ""
        raw = self._settings
        return (
            f" {self._exits.pack.identity} {self._certified} {raw.rule} {raw.measure} {raw.gate} {raw.decay} {raw.fill}"
        )

    def certificate(self) -> str | None:
        """In a line, what a server of mode `calibrated` promises, and to which requests; None without a risk."""
        if self._settings.risk is None:
            return None
        groups: dict[tuple[SamplingSettings, int], list[Certified]] = {}
        for entry in self._entries_for(self._settings.risk):
            groups.setdefault((entry.sampling, entry.max_tokens), []).append(entry)
        covered = [
            f"risk {best.risk:g} {self._saves(best)} for {sampling} and max_tokens up to {most}"
            for (sampling, most), entries in groups.items()
            if (best := choose(entries, self._settings.risk)) is not None
        ]
        if not covered:
            then = "so all layers run" if self._little is None else "which then answers"
            return f"mode calibrated: no certified policy is faster than {self._plainly}, {then}"
        others = "run all layers" if self._little is None else f"get {self._plainly}"
        return f"mode calibrated: {'; '.join(covered)}; other requests {others}"

    def policies(self, waiting: Callable[[], int]) -> dict[str, ExitPolicy]:
        """Fresh policies by name, for one engine; `waiting` tells how many requests wait."""
        if self._exits is None:
            return {}
        if self._mode not in EARLY:
            log.info("mode %s runs all layers: exits are for requests that ask for %s", self._mode, " or ".join(EARLY))
        if self._misfit is not None:
            log.warning("there is no mode calibrated: %s", self._misfit)
        policies: dict[str, ExitPolicy] = {
            name: self._exits.policy(entry.policy)
            for name, entry in self._certified.items()
            if isinstance(entry, CertifiedEntry)
        }
        if self._settings.threshold is not None:
            policies[UNCHECKED] = unchecked_policy(self._settings, self._exits, waiting)
        return policies

    def little_policies(self) -> dict[str, BigLittlePolicy]:
        """Those under which a little model writes, by name; none where it does not."""
        if self._little is None:
            return {}
        if self._misfit is not None:
            log.warning("there is no mode calibrated: %s", self._misfit)
        return self._little.policies

    def keep(self, how: Execution, params: SamplingParams, *, grammar_of: str | None = None) -> Kept:
        """What a request gets; `grammar_of` names what else but structured_outputs binds the answer.

        Raises InvalidRequestError naming the field that can't be honoured.
        """
        bound_by = "structured_outputs" if params.structured_outputs is not None else grammar_of
        if bound_by is not None and how.mode in EARLY:
            hint = f'set mode to "{LOSSLESS}" or "{FULL}"'
            who = "exits don't" if self._little is None else "the little model doesn't"
            message = f"mode={how.mode!r} beside {bound_by}: {who} know the grammar"
            raise InvalidRequestError(message, hint=hint, param="mode")
        pack = self._pack_for(how)
        if how.risk is not None and how.mode != CALIBRATED:
            hint = f'set mode to "{CALIBRATED}", or leave risk unset'
            raise InvalidRequestError(f"risk={how.risk:g}: mode {how.mode} takes none", hint=hint, param="risk")
        if how.mode == CALIBRATED:
            return self._calibrated(self._settings.risk if how.risk is None else how.risk, params, pack)
        if how.mode == UNCHECKED:
            return self._unchecked(pack)
        return Kept(mode=how.mode)

    def _pack_for(self, how: Execution) -> str | None:
        """The pack of a request that may leave early; refuses another pack, and modes without their pack."""
        known = None if self._exits is None else self._exits.name
        if how.exits is not None:
            if how.exits != known:
                hint = "leave exits unset" if known is None else f"the pack here is {known}"
                raise InvalidRequestError(f"there is no exit pack {shown(how.exits)}", hint=hint, param="exits")
            if how.mode not in EARLY:
                hint = f"set mode to {' or '.join(EARLY)}, or leave exits unset"
                raise InvalidRequestError(f"exits={known!r}: mode {how.mode} runs all layers", hint=hint, param="exits")
        if how.mode not in EARLY:
            return None
        if known is None and self._little is None:
            hint = "start with exits=PACK; `offramp train exits` makes one for a model"
            raise InvalidRequestError(f"mode={how.mode!r}: no exit pack is loaded", hint=hint, param="mode")
        return known

    def _unchecked(self, pack: str | None) -> Kept:
        """Raw settings, which must be there."""
        little = self._little
        if (self._settings.threshold if little is None else little.raw) is None:
            hint = (
                "start with exit_threshold, such as 0.9" if little is None else "start with little_rollback, such as 3"
            )
            raise InvalidRequestError("mode='unchecked': no thresholds were set", hint=hint, param="mode")
        return self._kept(UNCHECKED, UNCHECKED, pack)

    def _kept(self, mode: str, policy: str, pack: str | None, risk: float | None = None) -> Kept:
        if self._little is None:
            return Kept(mode=mode, exits=ExitParams(policy=policy), risk=risk, pack=pack)
        return Kept(mode=mode, big_little=policy, risk=risk, little=self._little.name)

    def _calibrated(self, risk: float | None, params: SamplingParams, pack: str | None) -> Kept:
        entries = self._entries_for(risk)
        covering = [entry for entry in entries if entry.why_not(params) is None]
        if not covering:
            return Kept(mode=FULL, reason=entries[0].why_not(params))
        best = choose(covering, max(entry.risk for entry in covering))
        if best is None:
            return Kept(mode=FULL, reason=f"no certified policy is faster than {self._plainly}")
        [name] = (name for name, entry in self._certified.items() if entry is best)
        return self._kept(CALIBRATED, name, pack, best.risk)

    @property
    def _plainly(self) -> str:
        """What is lost by nobody."""
        return "full depth" if self._little is None else "the big model alone"

    def _saves(self, entry: Certified) -> str:
        """What a certified policy leaves out, in words."""
        if isinstance(entry, CertifiedPair) and self._little is not None:
            return f"with {entry.little_share:.0%} of the tokens by {self._little.name}"
        return f"at {entry.measured.depth:.1f} of {self._loaded.config.num_layers} layers a token"

    def _entries_for(self, risk: float | None) -> list[Certified]:
        """Entries that keep a risk, at least one, the largest risk first."""
        entries = list(self._certified.values())
        if not entries:
            raise self._uncalibrated(EXAMPLE_RISK if risk is None else risk)
        if risk is None:
            known = ", ".join(f"{each:g}" for each in sorted({entry.risk for entry in entries}))
            message = "mode='calibrated' needs a risk"
            raise InvalidRequestError(message, hint=f"certified risks: {known}", param="risk")
        choose(entries, risk)  # refuses one below all that are certified
        return sorted((entry for entry in entries if entry.risk <= risk), key=lambda entry: -entry.risk)

    def _uncalibrated(self, risk: float) -> InvalidRequestError:
        if self._little is not None:
            why = self._misfit or "no little_calibration was given"
            hint = calibrate_pair_command(self._loaded, self._little.name, risk)
            return InvalidRequestError(f"mode='calibrated': {why}", hint=hint, param="mode")
        assert self._exits is not None
        why = self._misfit or f"the pack {self._exits.name} has no calibration"
        hint = calibrate_command(self._loaded, self._exits, risk)
        if self._batching != CALIBRATED_BATCHING:
            hint = (
                f"start with exit_batching={CALIBRATED_BATCHING}, which calibrations are of; if there is none: {hint}"
            )
        return InvalidRequestError(f"mode='calibrated': {why}", hint=hint, param="mode")


def circumstances(loaded: LoadedModel, batching: ExitBatching) -> Circumstances:
    """What a calibration of this model and its pack holds for."""
    assert loaded.exits is not None, "a calibration is one of a pack"
    return Circumstances(
        model=loaded.source_hash,
        config=config_identity(loaded.config),
        pack=loaded.exits.pack.identity,
        weights=loaded.formats_in_words,
        kv=loaded.kv,
        batching=batching,
    )


def calibrate_command(loaded: LoadedModel, exits: LoadedExits, risk: float) -> str:
    """What makes a calibration that fits this engine; a shipped pack, which is everybody's, is copied first."""
    shipped = is_shipped(exits.folder)
    own = f"my-{exits.name}" if shipped else str(exits.folder)
    words = ["offramp", "calibrate", loaded.name, "--exits", own, "--prompts", "FILE", "--risk", f"{risk:g}"]
    if loaded.weights != DEFAULT_WEIGHTS:
        words += ["--weights", loaded.weights]
    if loaded.kv != DEFAULT_KV:
        words += ["--kv", loaded.kv]
    if any(isinstance(rope.scaling, LongRopeScaling) for rope in loaded.config.ropes):
        words += ["--max-context", str(loaded.max_context)]  # which decides how they rotate
    command = shlex.join(words)
    return f"{shlex.join(['cp', '-r', str(exits.folder), own])} && {command}" if shipped else command


def _fitting(
    loaded: LoadedModel, exits: LoadedExits | None, batching: ExitBatching
) -> tuple[dict[str, CertifiedEntry], str | None]:
    """Entries that hold for this engine, under the names of their policies; if none does, why the first doesn't."""
    named: dict[str, CertifiedEntry] = {}
    misfits: list[str] = [] if exits is None or exits.damage is None else [exits.damage]
    for entry in () if exits is None else exits.entries:
        try:
            entry.check_fits(circumstances(loaded, batching))
        except InvalidRequestError as misfit:
            misfits.append(misfit.message)
            continue
        name = f"{CALIBRATED}:{entry.risk:g}"
        named[name if name not in named else f"{name}:{len(named)}"] = entry
    return named, misfits[0] if misfits and not named else None
