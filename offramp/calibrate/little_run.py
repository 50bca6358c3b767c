"""A calibration of big-little decoding: prompts and a pair of models -> certified entries.

As that of early exits (`run.py`): tuning prompts choose what is tested (`little_candidates.py`) and rehearse it,
calibration prompts are really answered under one policy after another until one fails its test, and the last that
passed becomes the entry of its risk, with its speed; plain decoding where none passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from offramp.cache.sequence import pages_for
from offramp.calibrate.answers import Answer, LittleRig, answer_all
from offramp.calibrate.candidates import Candidate
from offramp.calibrate.entries import RiskOutcome
from offramp.calibrate.gain import seconds_a_token
from offramp.calibrate.little_candidates import PairCosts, candidates
from offramp.calibrate.little_scores import LittleParts, score_pair
from offramp.calibrate.losses import loss_of
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.run import AT_ONCE, OVERHEAD_PROMPTS, Calibration
from offramp.calibrate.sizes import check_enough, num_tuning
from offramp.calibrate.walk import Stage, Tester
from offramp.collaborate.big_little_certificate import CertifiedPair
from offramp.collaborate.big_little_policy import LOSSLESS, NEVER, BigLittlePolicy
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.exits.calibration import Tested, hoeffding_bentkus_p, split
from offramp.exits.certificate import Measured, SamplingSettings
from offramp.llm.costs import COSTS, fill_costs
from offramp.llm.drafters import own_model
from offramp.llm.little import make_little, pair_of
from offramp.llm.loading import LoadedModel
from offramp.model.model_cache import default_cache
from offramp.native.sampling import sample_rows

PairCandidate = Candidate[BigLittlePolicy]
PairOutcome = RiskOutcome[CertifiedPair, BigLittlePolicy]
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
    work = _Work(loaded, loaded.draft, recipe, stage, at_once)
    paths = work.paths([prompts[index] for index in tuning], costs)
    outcomes = work.outcomes(paths, [prompts[index] for index in calibration])
    return Calibration(outcomes, len(tuning), len(calibration))


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What all steps of a calibration need."""

    loaded: LoadedModel
    draft: LoadedModel
    recipe: Recipe
    stage: Stage
    at_once: int

    def paths(self, prompts: Sequence[CalibrationPrompt], costs: PairCosts | None) -> dict[float, list[PairCandidate]]:
        """What to test for each risk, from tuning prompts, with the losses that it had there."""
        rig, little = self._rig(prompts, {}), self._little_parts()
        answers = answer_all(rig, prompts, None, self.stage("answering tuning prompts with the big model alone"))
        scored = score_pair(rig, little, answers, self.stage("asking both models about every token"))
        costs = costs or self._costs(rig, little, answers)
        self.stage("choosing what to test")(0, 1)
        num_layers = rig.num_layers
        found = {
            risk: candidates(scored, costs, num_layers=num_layers, risk=risk) for risk in sorted(set(self.recipe.risks))
        }
        tester = self._tester(found, prompts, "tuning")
        return {risk: tester.rehearsed(some, risk) for risk, some in found.items()}

    def outcomes(
        self, paths: Mapping[float, Sequence[PairCandidate]], prompts: Sequence[CalibrationPrompt]
    ) -> list[PairOutcome]:
        """What each risk's path comes to on calibration prompts."""
        tester = self._tester(paths, prompts, "calibration")
        gains: dict[BigLittlePolicy, float] = {}
        outcomes: list[PairOutcome] = []
        for risk, path in paths.items():
            walk = tester.walk(path, risk, self.recipe.delta)
            if not walk.passed:
                outcomes.append(RiskOutcome(self._alone(risk, len(prompts)), walk))
                continue
            best = walk.passed[-1]
            policy = best.setting.policy
            if policy not in gains:
                gains[policy] = tester.gain(policy, risk)
            entry = self._certified(risk, best, tester.little_share(policy), gains[policy])
            outcomes.append(RiskOutcome(entry, walk))
        return outcomes

    def _certified(self, risk: float, tested: Tested[PairCandidate], little_share: float, gain: float) -> CertifiedPair:
        measured = Measured(
            num_prompts=tested.num_prompts,
            mean_loss=tested.mean_loss,
            p_value=tested.p_value,
            depth=float(self.loaded.config.num_layers),
            gain=gain,
        )
        return self._entry(risk, tested.setting.policy, measured, little_share)

    def _alone(self, risk: float, num_prompts: int) -> CertifiedPair:
        """It loses nothing, and `choose` lets the big model answer alone."""
        measured = Measured(
            num_prompts=num_prompts,
            mean_loss=0.0,
            p_value=hoeffding_bentkus_p(0.0, num_prompts, risk),
            depth=float(self.loaded.config.num_layers),
            gain=1.0,
        )
        return self._entry(risk, ALONE, measured, 0.0)

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

    def _tester(
        self, paths: Mapping[float, Sequence[PairCandidate]], prompts: Sequence[CalibrationPrompt], whose: str
    ) -> Tester[BigLittlePolicy]:
        """With an engine that knows the policies of all paths."""
        policies = dict.fromkeys(each.policy for path in paths.values() for each in path)
        names = {policy: f"policy-{number}" for number, policy in enumerate(policies)}
        rig = self._rig(prompts, {name: policy for policy, name in names.items()})
        make = loss_of(self.recipe.loss)
        return Tester(rig, names, prompts, lambda full: make(rig, full, self.loaded.tokenizer), self.stage, whose)

    def _rig(self, prompts: Sequence[CalibrationPrompt], policies: Mapping[str, BigLittlePolicy]) -> LittleRig:
        loaded, params = self.loaded, self.recipe.params
        assert params.max_tokens is not None
        longest = max(len(prompt.token_ids) for prompt in prompts) + params.max_tokens
        fitting = loaded.executor.num_pages // pages_for(min(longest, loaded.max_context))
        engine = Engine(
            loaded.executor,
            max_context=loaded.max_context,
            max_num_seqs=max(1, min(self.at_once, fitting)),
            sample_rows=sample_rows,
            little=make_little(own_model(loaded, self.draft), policies),
        )
        return LittleRig(
            executor=loaded.executor,
            engine=engine,
            params=params,
            eos_token_ids=loaded.eos_token_ids,
            sample_rows=sample_rows,
        )

    def _little_parts(self) -> LittleParts:
        draft = self.draft
        engine = Engine(draft.executor, max_context=draft.max_context, sample_rows=sample_rows)
        return LittleParts(draft.executor, own_model(self.loaded, draft), engine)

    def _costs(self, rig: LittleRig, little: LittleParts, answers: Sequence[Answer]) -> PairCosts:
        """Measured now, or kept on disk where the engine's own are."""
        tell = self.stage("measuring what both models cost")
        big, small = MeasuredCosts(), MeasuredCosts()
        fill_costs(big, self.loaded, rig.engine, default_cache() / COSTS)
        fill_costs(small, self.draft, little.engine, default_cache() / COSTS)
        context = sum(len(each.text_ids) for each in answers) // len(answers)
        num_layers = rig.num_layers
        alone = [seconds_a_token(rig, each.prompt, None) for each in answers[:OVERHEAD_PROMPTS]]
        known = big.seconds(1, num_layers, context)
        step = max(0.0, median([seconds for seconds in alone if seconds is not None] or [known]) - known)
        tell(1, 1)
        return PairCosts(
            round=small.seconds(1, little.num_layers, context),
            verify=lambda num_rows: big.seconds(num_rows, num_layers, context) + step,
        )
