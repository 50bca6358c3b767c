"""A whole calibration: prompts and an exit pack -> certified entries.

1. Tuning prompts are answered at full depth; every exit point says what it thinks of every token (`scores.py`).
2. For each risk that suggests policies, safest first, fastest last (`candidates.py`), by measured costs (`costs.py`);
   losses that it can't foresee are tried on the tuning prompts.
3. Calibration prompts are answered under one policy after another, until one fails its test (`walk.py`).
4. The last that passed becomes the entry of its risk, with its speed (`gain.py`); full depth where none passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from offramp.calibrate.answers import Answer, Rig, answer_all
from offramp.calibrate.candidates import Candidate, best_path
from offramp.calibrate.costs import ExitCosts, measure_exit_costs
from offramp.calibrate.entries import Entry, EntryMaker, P, RiskOutcome
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.scores import score_tokens
from offramp.calibrate.sizes import check_enough, largest_loss, num_tuning
from offramp.calibrate.walk import Stage, Tester
from offramp.calibrate.work import Work
from offramp.exits.calibration import Tested, split
from offramp.exits.certificate import CertifiedEntry
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.pack import ExitPack, bind, load_heads
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel
from offramp.llm.promises import CALIBRATED_BATCHING, circumstances

FINER = (1.0, 1 / 4, 1 / 16)
"""Of the risk: how many other tokens paths may lead to where a loss is not about the tokens of full depth's own text.

Approximate K/V and the texts that follow a difference only show in real answers, so candidates are rehearsed.
"""
AT_ONCE = 16
"""Prompts that are answered together, where K/V memory holds so many."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration(Generic[Entry, P]):
    """One outcome a risk, in rising order."""

    outcomes: Sequence[RiskOutcome[Entry, P]]
    num_tuning: int
    num_calibration: int

    @property
    def entries(self) -> list[Entry]:
        return [outcome.entry for outcome in self.outcomes]

    def fields(self) -> dict[str, object]:
        """How it came about, as JSON."""
        return {
            "num_tuning": self.num_tuning,
            "num_calibration": self.num_calibration,
            "risks": [outcome.fields() for outcome in self.outcomes],
        }


def with_pack(loaded: LoadedModel, pack: ExitPack) -> LoadedModel:
    """The model with a pack that was read, whatever calibration lies beside it. Raises what `bind` raises."""
    assert pack.folder is not None, "a pack that was read from a folder"
    bind(pack, model_hash=loaded.source_hash, config=loaded.config)
    heads = load_heads(loaded.executor, pack)
    name = pack.folder.resolve().name
    return replace(loaded, exits=LoadedExits(name=name, folder=pack.folder, pack=pack, heads=heads, entries=()))


def calibrate(
    loaded: LoadedModel,
    prompts: Sequence[CalibrationPrompt],
    recipe: Recipe,
    stage: Stage,
    *,
    costs: ExitCosts | None = None,
    at_once: int = AT_ONCE,
) -> Calibration[CertifiedEntry, FrozenPolicy]:
    """Certify each risk of the recipe for a model with its pack (`with_pack`). Raises OfframpError.

    `costs` are measured unless given. Nothing but them and the measured gains depends on the machine.
    """
    for risk in sorted(set(recipe.risks)):
        check_enough(len(prompts), risk, recipe.delta)
    tuning, calibration = split(len(prompts), num_tuning(len(prompts)), recipe.seed)
    assert loaded.exits is not None, "a pack is loaded"
    maker = EntryMaker(recipe, circumstances(loaded, CALIBRATED_BATCHING), loaded.config.num_layers)
    work = _ExitWork(loaded, recipe, stage, at_once, loaded.exits, maker)
    paths = work.paths([prompts[index] for index in tuning], len(calibration), costs)
    outcomes = work.outcomes(paths, [prompts[index] for index in calibration])
    return Calibration(outcomes, len(tuning), len(calibration))


@dataclass(frozen=True, slots=True, eq=False)
class _ExitWork(Work[CertifiedEntry, FrozenPolicy]):
    exits: LoadedExits
    maker: EntryMaker

    def paths(
        self, prompts: Sequence[CalibrationPrompt], num_calibration: int, costs: ExitCosts | None
    ) -> dict[float, list[Candidate[FrozenPolicy]]]:
        """What to test for each risk, from tuning prompts."""
        rig = self.rig(prompts, {})
        answers = answer_all(rig, prompts, None, self.stage("answering tuning prompts at full depth"))
        scored = score_tokens(rig, self.exits, answers, self.stage("asking every exit about every token"))
        costs = costs or self._costs(rig, answers)

        def path(risk: float, scale: float) -> list[Candidate[FrozenPolicy]]:
            return best_path(
                scored,
                costs,
                num_layers=rig.num_layers,
                fill=self.recipe.fill,
                risk=risk * scale,
                passable=largest_loss(num_calibration, risk, self.recipe.delta) * scale,
            )

        risks = sorted(set(self.recipe.risks))
        self.stage("choosing what to test")(0, 1)
        if self.recipe.loss == "tokens" and self.recipe.fill == "deferred":
            return {risk: path(risk, 1.0) for risk in risks}
        candidates = {risk: [each for scale in FINER for each in path(risk, scale)] for risk in risks}
        tester = self.tester(candidates, prompts, "tuning")
        return {risk: tester.rehearsed(some, risk) for risk, some in candidates.items()}

    def rig(self, prompts: Sequence[CalibrationPrompt], policies: Mapping[str, FrozenPolicy]) -> Rig:
        known = {name: self.exits.policy(policy) for name, policy in policies.items()}
        return self.rigged(Rig, prompts, exit_policies=known)

    def plain_entry(self, risk: float, num_prompts: int) -> CertifiedEntry:
        return self.maker.full_depth(risk, self.exits.pack.config.layers[-1], num_prompts)

    def entry(
        self, risk: float, passed: Tested[Candidate[FrozenPolicy]], tester: Tester[FrozenPolicy], gain: float
    ) -> CertifiedEntry:
        return self.maker.certified(risk, passed, depth=tester.depth(passed.setting.policy), gain=gain)

    def _costs(self, rig: Rig, answers: Sequence[Answer]) -> ExitCosts:
        tell = self.stage("measuring what exits cost")
        known = self.step_costs(rig, answers)
        costs = measure_exit_costs(rig, self.exits, known.table, context=known.context, step=known.overhead)
        tell(1, 1)
        return costs
