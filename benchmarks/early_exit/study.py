"""A model with its pack, prompts that full depth answered, and what every exit point says of those answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.early_exit.contestant import FULL, Sample
from benchmarks.early_exit.costs import StepCosts, measure_step_costs
from benchmarks.early_exit.turns import Prompts, groups_of, take_turns
from benchmarks.session import Json
from offramp.calibrate.answers import Answer, Rig
from offramp.calibrate.scores import ScoredTokens, score_tokens
from offramp.core import SamplingParams
from offramp.engine.engine import Engine
from offramp.llm.loading import LoadedModel
from offramp.native.sampling import sample_rows

STREAMS = (1, 4, 16)
MOST_STREAMS = STREAMS[-1]
BESIDES_GROUPS = 2
SURE = (0.95, 0.99)
"""How often those that leave shall agree, in the figures that compare exits and measures."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Study:
    """What choosing is based on."""

    name: str
    loaded: LoadedModel
    prompts: Prompts
    answers: list[list[int]]  # of full depth, by prompt
    scored: ScoredTokens
    costs: StepCosts
    new_tokens: int

    @property
    def rig(self) -> Rig:
        """For what `offramp.calibrate` does with answers."""
        return make_rig(self.loaded, self.new_tokens)


def study(name: str, loaded: LoadedModel, prompts: Prompts, new_tokens: int) -> Study:
    """Answer at full depth, ask every exit point about every token, and measure what steps cost."""
    exits = loaded.exits
    assert exits is not None, "a pack is loaded"
    besides = {}
    for streams in STREAMS:
        groups = groups_of(prompts, streams)[:BESIDES_GROUPS]
        runs = take_turns(loaded, [FULL], groups, new_tokens=new_tokens, rounds=1, what=f"{name}, steps")[FULL][0]
        besides[streams] = _besides(runs)
    groups = groups_of(prompts, MOST_STREAMS, rest=True)
    runs = take_turns(loaded, [FULL], groups, new_tokens=new_tokens, rounds=1, what=f"{name}, full depth")[FULL][0]
    answers = answers_of(runs)
    rig, depth = make_rig(loaded, new_tokens), loaded.config.num_layers
    told = [
        Answer(prompt, np.array(answer, np.int32), np.full(len(answer), depth, np.int32))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    scored = score_tokens(rig, exits, told, lambda done, whole: None)
    context = sum(len(each.text_ids) for each in told) // len(told)
    costs = measure_step_costs(loaded, context=context, besides=besides)
    return Study(
        name=name,
        loaded=loaded,
        prompts=prompts,
        answers=answers,
        scored=scored,
        costs=costs,
        new_tokens=new_tokens,
    )


def make_rig(loaded: LoadedModel, new_tokens: int) -> Rig:
    """An engine of its own, idle."""
    engine = Engine(loaded.executor, max_context=loaded.max_context, sample_rows=sample_rows, prefix_cache=False)
    return Rig(
        executor=loaded.executor,
        engine=engine,
        params=SamplingParams(temperature=0, max_tokens=new_tokens, seed=0),
        eos_token_ids=loaded.eos_token_ids,
        sample_rows=sample_rows,
    )


def answers_of(runs: Sequence[Sample]) -> list[list[int]]:
    """By prompt, of one round."""
    return [answer for sample in runs for answer in sample.token_ids]


def agreement_line(study: Study) -> Json:
    """By exit point: how often its likeliest token is full depth's, and how many tokens each measure could let go."""
    scored = study.scored
    at = scored.asked
    exits = []
    for column, layer in enumerate(scored.layers):
        agreed = scored.agreed[at, column]
        leaving = {
            measure: {str(sure): round(most_leaving(scores[at, column], agreed, sure), 4) for sure in SURE}
            for measure, scores in (*scored.measures.items(), *scored.predictors.items())
        }
        exits.append({"layer": layer, "agree": round(float(agreed.mean()), 4), "leaving": leaving})
    return {"result": "agreement", "model": study.name, "tokens": int(at.sum()), "exits": exits}


def most_leaving(scores: NDArray[np.float32], agreed: NDArray[np.bool_], sure: float) -> float:
    """The largest share of tokens, those with the best scores, of which at least `sure` agree."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(agreed[order]) / np.arange(1, len(order) + 1)
    tied = np.append(scores[order][1:] == scores[order][:-1], False)  # a threshold can't part equal scores
    enough = np.flatnonzero((right >= sure) & ~tied)
    return float(enough[-1] + 1) / len(order) if len(enough) else 0.0


def cost_line(study: Study) -> Json:
    """What the predictions are made of, in milliseconds."""
    costs = study.costs

    def shown(rows: int) -> Json:
        table = costs.table
        parts = {"layer": costs.range(rows, 1) - table.call, "call": table.call, "head": table.head.at(rows)}
        asks = [curve.at(rows) for curve in costs.ask.values()]
        parts |= {"ask": sum(asks) / len(asks), "fill": costs.fill.at(rows)}
        parts["besides"] = costs.besides[rows]
        parts |= {kind: curve.at(rows) for kind, curve in costs.guess.items()}
        return {name: round(1000 * seconds, 4) for name, seconds in parts.items()}

    by_rows = {str(rows): shown(rows) for rows in STREAMS}
    return {"result": "costs", "model": study.name, "context": costs.context, "ms_by_rows": by_rows}


def _besides(runs: Sequence[Sample]) -> float:
    """Seconds of a step outside the executor."""
    steps = sum(sample.counts.steps for sample in runs)
    return sum(sample.counts.step_s - sample.counts.run_s for sample in runs) / max(1, steps)
