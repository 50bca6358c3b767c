"""What a calibration writes down: one entry a risk, certified, if need be full depth itself; and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from offramp.calibrate.candidates import Candidate, Policy
from offramp.calibrate.recipe import Recipe
from offramp.exits.calibration import Tested, Walk, hoeffding_bentkus_p
from offramp.exits.certificate import Certified, CertifiedEntry, Circumstances, Measured, SamplingSettings
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.measures import MEASURES
from offramp.exits.thresholds import NEVER

Entry = TypeVar("Entry", bound=Certified)
P = TypeVar("P", bound=Policy)


@dataclass(frozen=True, slots=True, eq=False)
class RiskOutcome(Generic[Entry, P]):
    """What became of one risk."""

    entry: Entry
    walk: Walk[Candidate[P]]

    @property
    def chosen(self) -> Candidate[P] | None:
        """The entry's policy as it was suggested; None: nothing passed, and the entry is full depth."""
        return self.walk.passed[-1].setting if self.walk.passed else None

    def fields(self) -> dict[str, object]:
        """What was tested, as JSON."""
        tested = [_fields(each, passed=True) for each in self.walk.passed]
        if self.walk.failed is not None:
            tested.append(_fields(self.walk.failed, passed=False))
        return {"risk": self.entry.risk, "tested": tested}


@dataclass(frozen=True, slots=True, eq=False)
class EntryMaker:
    """What the entries of a calibration have in common."""

    recipe: Recipe
    circumstances: Circumstances
    num_layers: int

    def certified(
        self, risk: float, tested: Tested[Candidate[FrozenPolicy]], *, depth: float, gain: float
    ) -> CertifiedEntry:
        """A policy that passed."""
        measured = measured_of(tested, depth=depth, gain=gain)
        return self._entry(risk, tested.setting.policy, measured)

    def full_depth(self, risk: float, layer: int, num_prompts: int) -> CertifiedEntry:
        """A policy that lets nothing leave: it loses nothing, and `choose` runs full depth instead."""
        policy = FrozenPolicy(layers=(layer,), thresholds=(NEVER,), measure=next(iter(MEASURES)), fill=self.recipe.fill)
        measured = nothing_lost(risk, num_prompts, self.num_layers)
        return self._entry(risk, policy, measured)

    def _entry(self, risk: float, policy: FrozenPolicy, measured: Measured) -> CertifiedEntry:
        params = self.recipe.params
        assert params.max_tokens is not None
        return CertifiedEntry(
            risk=risk,
            delta=self.recipe.delta,
            loss=self.recipe.loss,
            policy=policy,
            circumstances=self.circumstances,
            sampling=SamplingSettings.of(params),
            max_tokens=params.max_tokens,
            measured=measured,
        )


def measured_of(tested: Tested[Candidate[P]], *, depth: float, gain: float) -> Measured:
    """Of a policy that passed."""
    return Measured(
        num_prompts=tested.num_prompts, mean_loss=tested.mean_loss, p_value=tested.p_value, depth=depth, gain=gain
    )


def nothing_lost(risk: float, num_prompts: int, num_layers: int) -> Measured:
    """Of plain decoding."""
    p_value = hoeffding_bentkus_p(0.0, num_prompts, risk)
    return Measured(num_prompts=num_prompts, mean_loss=0.0, p_value=p_value, depth=float(num_layers), gain=1.0)


def _fields(tested: Tested[Candidate[P]], *, passed: bool) -> dict[str, object]:
    candidate = tested.setting
    return {
        "policy": candidate.policy.fields(),
        "passed": passed,
        "mean_loss": tested.mean_loss,
        "p_value": tested.p_value,
        "tuning_loss": candidate.loss,
        "predicted_gain": candidate.predicted.gain,
        "predicted_depth": candidate.predicted.depth,
    }
