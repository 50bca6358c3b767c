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
from statistics import median
from typing import Generic

from offramp.cache.sequence import pages_for
from offramp.calibrate.answers import Answer, Rig, answer_all
from offramp.calibrate.candidates import Candidate, best_path
from offramp.calibrate.costs import ExitCosts, measure_exit_costs
from offramp.calibrate.entries import Entry, EntryMaker, P, RiskOutcome
from offramp.calibrate.gain import seconds_a_token
from offramp.calibrate.losses import loss_of
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.scores import score_tokens
from offramp.calibrate.sizes import check_enough, largest_loss, num_tuning
from offramp.calibrate.walk import Stage, Tester
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.exits.calibration import split
from offramp.exits.certificate import CertifiedEntry
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.pack import ExitPack, bind, load_heads
from offramp.exits.policy import ExitPolicy
from offramp.llm.costs import COSTS, fill_costs
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel
from offramp.llm.promises import CALIBRATED_BATCHING, circumstances
from offramp.model.model_cache import default_cache
from offramp.native.sampling import sample_rows

FINER = (1.0, 1 / 4, 1 / 16)
"""Of the risk: how many other tokens paths may lead to where a loss is not about the tokens of full depth's own text.

Approximate K/V and the texts that follow a difference only show in real answers, so candidates are rehearsed.
"""
AT_ONCE = 16
"""Prompts that are answered together, where K/V memory holds so many."""
OVERHEAD_PROMPTS = 3
"""Prompts decoded alone to see what a step takes besides the executor."""


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
    work = _Work(loaded, loaded.exits, recipe, stage, at_once)
    paths = work.paths([prompts[index] for index in tuning], len(calibration), costs)
    maker = EntryMaker(recipe, circumstances(loaded, CALIBRATED_BATCHING), loaded.config.num_layers)
    outcomes = work.outcomes(paths, [prompts[index] for index in calibration], maker)
    return Calibration(outcomes, len(tuning), len(calibration))


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What all steps of a calibration need."""

    loaded: LoadedModel
    exits: LoadedExits
    recipe: Recipe
    stage: Stage
    at_once: int

    def paths(
        self, prompts: Sequence[CalibrationPrompt], num_calibration: int, costs: ExitCosts | None
    ) -> dict[float, list[Candidate[FrozenPolicy]]]:
        """What to test for each risk, from tuning prompts."""
        rig = self._rig(prompts, {})
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
        tester = self._tester(candidates, prompts, "tuning")
        return {risk: tester.rehearsed(some, risk) for risk, some in candidates.items()}

    def outcomes(
        self,
        paths: Mapping[float, Sequence[Candidate[FrozenPolicy]]],
        prompts: Sequence[CalibrationPrompt],
        maker: EntryMaker,
    ) -> list[RiskOutcome[CertifiedEntry, FrozenPolicy]]:
        """What each risk's path comes to on calibration prompts."""
        tester = self._tester(paths, prompts, "calibration")
        gains: dict[FrozenPolicy, float] = {}
        outcomes = []
        for risk, path in paths.items():
            walk = tester.walk(path, risk, self.recipe.delta)
            if not walk.passed:
                outcomes.append(
                    RiskOutcome(maker.full_depth(risk, self.exits.pack.config.layers[-1], len(prompts)), walk)
                )
                continue
            best = walk.passed[-1]
            policy = best.setting.policy
            if policy not in gains:
                gains[policy] = tester.gain(policy, risk)
            entry = maker.certified(risk, best, depth=tester.depth(policy), gain=gains[policy])
            outcomes.append(RiskOutcome(entry, walk))
        return outcomes

    def _tester(
        self, paths: Mapping[float, Sequence[Candidate[FrozenPolicy]]], prompts: Sequence[CalibrationPrompt], whose: str
    ) -> Tester[FrozenPolicy]:
        """With an engine that knows the policies of all paths."""
        policies = dict.fromkeys(each.policy for path in paths.values() for each in path)
        names = {policy: f"policy-{number}" for number, policy in enumerate(policies)}
        rig = self._rig(prompts, {name: self.exits.policy(each) for each, name in names.items()})
        make = loss_of(self.recipe.loss)
        return Tester(rig, names, prompts, lambda full: make(rig, full, self.loaded.tokenizer), self.stage, whose)

    def _rig(self, prompts: Sequence[CalibrationPrompt], policies: Mapping[str, ExitPolicy]) -> Rig:
        """An engine that never preempts: `propagate` recomputes what is preempted exactly, so pages would matter."""
        loaded, params = self.loaded, self.recipe.params
        assert params.max_tokens is not None
        longest = max(len(prompt.token_ids) for prompt in prompts) + params.max_tokens
        fitting = loaded.executor.num_pages // pages_for(min(longest, loaded.max_context))
        engine = Engine(
            loaded.executor,
            max_context=loaded.max_context,
            max_num_seqs=max(1, min(self.at_once, fitting)),
            exit_policies=policies,
            sample_rows=sample_rows,
        )
        return Rig(
            executor=loaded.executor,
            engine=engine,
            params=params,
            eos_token_ids=loaded.eos_token_ids,
            sample_rows=sample_rows,
        )

    def _costs(self, rig: Rig, answers: Sequence[Answer]) -> ExitCosts:
        """Measured now, or kept on disk where the engine's own are."""
        tell = self.stage("measuring what exits cost")
        table = MeasuredCosts()
        fill_costs(table, self.loaded, rig.engine, default_cache() / COSTS)
        context = sum(len(each.text_ids) for each in answers) // len(answers)
        num_layers = rig.num_layers
        alone = [seconds_a_token(rig, each.prompt, None) for each in answers[:OVERHEAD_PROMPTS]]
        known = table.seconds(1, num_layers, context)
        step = max(0.0, median([seconds for seconds in alone if seconds is not None] or [known]) - known)
        costs = measure_exit_costs(rig, self.exits, table, context=context, step=step)
        tell(1, 1)
        return costs
