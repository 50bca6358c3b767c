"""What the calibrations of early exits and of a little model have in common: engines, tests of paths, entries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from offramp.cache.sequence import pages_for
from offramp.calibrate.answers import Answer, Rig
from offramp.calibrate.candidates import Candidate
from offramp.calibrate.entries import Entry, P, RiskOutcome
from offramp.calibrate.gain import seconds_a_token
from offramp.calibrate.losses import loss_of
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.walk import Stage, Tester
from offramp.core import Little
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.exits.calibration import Tested
from offramp.exits.policy import ExitPolicy
from offramp.llm.costs import COSTS, fill_costs
from offramp.llm.loading import LoadedModel
from offramp.model.model_cache import default_cache
from offramp.native.sampling import sample_rows

OVERHEAD_PROMPTS = 3
"""Prompts decoded alone to see what a step takes besides the executor."""

R = TypeVar("R", bound=Rig)


@dataclass(frozen=True, slots=True, eq=False)
class Work(ABC, Generic[Entry, P]):
    """What all steps of a calibration need."""

    loaded: LoadedModel
    recipe: Recipe
    stage: Stage
    at_once: int

    @abstractmethod
    def rig(self, prompts: Sequence[CalibrationPrompt], policies: Mapping[str, P]) -> Rig:
        """For these prompts, with an engine that knows these policies by name."""

    @abstractmethod
    def plain_entry(self, risk: float, num_prompts: int) -> Entry:
        """Of a risk at which nothing passed: plain decoding."""

    @abstractmethod
    def entry(self, risk: float, passed: Tested[Candidate[P]], tester: Tester[P], gain: float) -> Entry:
        """Of the last policy that passed."""

    def outcomes(
        self, paths: Mapping[float, Sequence[Candidate[P]]], prompts: Sequence[CalibrationPrompt]
    ) -> list[RiskOutcome[Entry, P]]:
        """What each risk's path comes to on calibration prompts."""
        tester = self.tester(paths, prompts, "calibration")
        gains: dict[P, float] = {}
        outcomes: list[RiskOutcome[Entry, P]] = []
        for risk, path in paths.items():
            walk = tester.walk(path, risk, self.recipe.delta)
            if not walk.passed:
                outcomes.append(RiskOutcome(self.plain_entry(risk, len(prompts)), walk))
                continue
            best = walk.passed[-1]
            policy = best.setting.policy
            if policy not in gains:
                gains[policy] = tester.gain(policy, risk)
            outcomes.append(RiskOutcome(self.entry(risk, best, tester, gains[policy]), walk))
        return outcomes

    def tester(
        self, paths: Mapping[float, Sequence[Candidate[P]]], prompts: Sequence[CalibrationPrompt], whose: str
    ) -> Tester[P]:
        """With an engine that knows the policies of all paths."""
        policies = dict.fromkeys(each.policy for path in paths.values() for each in path)
        names = {policy: f"policy-{number}" for number, policy in enumerate(policies)}
        rig = self.rig(prompts, {name: policy for policy, name in names.items()})
        make = loss_of(self.recipe.loss)
        return Tester(rig, names, prompts, lambda full: make(rig, full, self.loaded.tokenizer), self.stage, whose)

    def rigged(
        self,
        kind: type[R],
        prompts: Sequence[CalibrationPrompt],
        *,
        exit_policies: Mapping[str, ExitPolicy] | None = None,
        little: Little | None = None,
    ) -> R:
        """An engine that never preempts: `propagate` recomputes what is preempted exactly, so pages would matter."""
        loaded, params = self.loaded, self.recipe.params
        assert params.max_tokens is not None
        longest = max(len(prompt.token_ids) for prompt in prompts) + params.max_tokens
        fitting = loaded.executor.num_pages // pages_for(min(longest, loaded.max_context))
        engine = Engine(
            loaded.executor,
            max_context=loaded.max_context,
            max_num_seqs=max(1, min(self.at_once, fitting)),
            exit_policies=exit_policies,
            sample_rows=sample_rows,
            little=little,
        )
        return kind(
            executor=loaded.executor,
            engine=engine,
            params=params,
            eos_token_ids=loaded.eos_token_ids,
            sample_rows=sample_rows,
        )

    def step_costs(self, rig: Rig, answers: Sequence[Answer]) -> StepCosts:
        """Measured now, or kept on disk where the engine's own are."""
        table = MeasuredCosts()
        fill_costs(table, self.loaded, rig.engine, default_cache() / COSTS)
        context = sum(len(each.text_ids) for each in answers) // len(answers)
        alone = [seconds_a_token(rig, each.prompt, None) for each in answers[:OVERHEAD_PROMPTS]]
        known = table.seconds(1, rig.num_layers, context)
        overhead = max(0.0, median([seconds for seconds in alone if seconds is not None] or [known]) - known)
        return StepCosts(table, context, overhead)


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """Of a model's steps at the answers' mean context; seconds of one besides the executor."""

    table: MeasuredCosts
    context: int
    overhead: float
