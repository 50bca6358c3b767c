"""A calibration of big-little decoding: prompts and a pair of models -> certified entries.

As that of early exits (`run.py`): tuning prompts choose what is tested (`little_candidates.py`) and rehearse it,
calibration prompts are really answered under one policy after another until one fails its test, and the last that
passed becomes the entry of its risk, with its speed; plain decoding where none passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.calibrate.answers import Answer, LittleRig, answer_all
from offramp.calibrate.candidates import Candidate
from offramp.calibrate.entries import measured_of, nothing_lost
from offramp.calibrate.little_candidates import PairCosts, candidates
from offramp.calibrate.little_scores import LittleParts, score_pair
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.run import AT_ONCE, Calibration
from offramp.calibrate.sizes import check_enough, num_tuning
from offramp.calibrate.walk import Stage, Tester
from offramp.calibrate.work import Work
from offramp.collaborate.big_little_certificate import CertifiedPair
from offramp.collaborate.big_little_policy import LOSSLESS, NEVER, BigLittlePolicy
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.exits.calibration import Tested, split
from offramp.exits.certificate import Measured, SamplingSettings
from offramp.llm.costs import COSTS, fill_costs
from offramp.llm.drafters import own_model
from offramp.llm.little import make_little, pair_of
from offramp.llm.loading import LoadedModel
from offramp.model.model_cache import default_cache
from offramp.native.sampling import sample_rows

PairCandidate = Candidate[BigLittlePolicy]
ALONE = BigLittlePolicy(fallback=NEVER, rollback=LOSSLESS)
"""Of the entries of risks at which nothing passed: the little model writes nothing."""


def calibrate_pair(
    loaded: LoadedModel,
    prompts: Sequence[CalibrationPrompt],
    recipe: Recipe,
    stage: Stage,
    *,
    costs: PairCosts | None = None,
    at_once: int = AT_ONCE,
) -> Calibration[CertifiedPair, BigLittlePolicy]:
    """Certify each risk of the recipe for a model with its draft model. Raises OfframpError.

    `costs` are measured unless given. Nothing but them and the measured gains depends on the machine.
    """
    for risk in sorted(set(recipe.risks)):
        check_enough(len(prompts), risk, recipe.delta)
    assert loaded.draft is not None, "a draft model is loaded"
    tuning, calibration = split(len(prompts), num_tuning(len(prompts)), recipe.seed)
    work = _PairWork(loaded, recipe, stage, at_once, loaded.draft)
    paths = work.paths([prompts[index] for index in tuning], costs)
    outcomes = work.outcomes(paths, [prompts[index] for index in calibration])
    return Calibration(outcomes, len(tuning), len(calibration))


@dataclass(frozen=True, slots=True, eq=False)
class _PairWork(Work[CertifiedPair, BigLittlePolicy]):
    draft: LoadedModel

    def paths(self, prompts: Sequence[CalibrationPrompt], costs: PairCosts | None) -> dict[float, list[PairCandidate]]:
        """What to test for each risk, from tuning prompts, with the losses that it had there."""
        rig, little = self.rig(prompts, {}), self._little_parts()
        answers = answer_all(rig, prompts, None, self.stage("answering tuning prompts with the big model alone"))
        scored = score_pair(rig, little, answers, self.stage("asking both models about every token"))
        costs = costs or self._costs(rig, little, answers)
        self.stage("choosing what to test")(0, 1)
        num_layers = rig.num_layers
        found = {
            risk: candidates(scored, costs, num_layers=num_layers, risk=risk) for risk in sorted(set(self.recipe.risks))
        }
        tester = self.tester(found, prompts, "tuning")
        return {risk: tester.rehearsed(some, risk) for risk, some in found.items()}

    def rig(self, prompts: Sequence[CalibrationPrompt], policies: Mapping[str, BigLittlePolicy]) -> LittleRig:
        return self.rigged(LittleRig, prompts, little=make_little(own_model(self.loaded, self.draft), policies))

    def plain_entry(self, risk: float, num_prompts: int) -> CertifiedPair:
        """It loses nothing, and `choose` lets the big model answer alone."""
        measured = nothing_lost(risk, num_prompts, self.loaded.config.num_layers)
        return self._entry(risk, ALONE, measured, 0.0)

    def entry(
        self, risk: float, passed: Tested[PairCandidate], tester: Tester[BigLittlePolicy], gain: float
    ) -> CertifiedPair:
        policy = passed.setting.policy
        measured = measured_of(passed, depth=float(self.loaded.config.num_layers), gain=gain)
        return self._entry(risk, policy, measured, tester.little_share(policy))

    def _entry(self, risk: float, policy: BigLittlePolicy, measured: Measured, little_share: float) -> CertifiedPair:
        params = self.recipe.params
        assert params.max_tokens is not None
        return CertifiedPair(
            risk=risk,
            delta=self.recipe.delta,
            loss=self.recipe.loss,
            policy=policy,
            circumstances=pair_of(self.loaded, self.draft),
            sampling=SamplingSettings.of(params),
            max_tokens=params.max_tokens,
            measured=measured,
            little_share=little_share,
        )

    def _little_parts(self) -> LittleParts:
        draft = self.draft
        engine = Engine(draft.executor, max_context=draft.max_context, sample_rows=sample_rows)
        return LittleParts(draft.executor, own_model(self.loaded, draft), engine)

    def _costs(self, rig: LittleRig, little: LittleParts, answers: Sequence[Answer]) -> PairCosts:
        """Measured now, or kept on disk where the engine's own are."""
        tell = self.stage("measuring what both models cost")
        big, small = self.step_costs(rig, answers), MeasuredCosts()
        fill_costs(small, self.draft, little.engine, default_cache() / COSTS)
        tell(1, 1)
        return PairCosts(
            round=small.seconds(1, little.num_layers, big.context),
            verify=lambda num_rows: big.table.seconds(num_rows, rig.num_layers, big.context) + big.overhead,
        )
