"""The default model on general prompts: certified entries where the pack has them, else thresholds chosen here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.early_exit.candidates import Space, token_loss
from benchmarks.early_exit.contestant import FULL, Sample, Setting
from benchmarks.early_exit.replay import predicted_gain
from benchmarks.early_exit.study import STREAMS, Study, answers_of
from benchmarks.early_exit.summary import compare
from benchmarks.early_exit.turns import Prompts, groups_of, take_turns
from benchmarks.machine import load
from benchmarks.session import Json
from offramp.calibrate.answers import Answer
from offramp.calibrate.losses import token_loss as measured_loss
from offramp.errors import InvalidRequestError
from offramp.exits.certificate import CertifiedEntry
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill
from offramp.llm.promises import circumstances

RISKS = (0.05, 0.02)
FILLS: tuple[Fill, ...] = ("deferred", "propagate")


@dataclass(frozen=True, slots=True)
class Named:
    """A policy, why it is here, and what its calibration said of it."""

    what: str  # "certified", or "unchecked"
    risk: float
    policy: FrozenPolicy
    entry: CertifiedEntry | None = None


def default_policies(study: Study) -> list[Named]:
    """For each risk the pack's entry; without one the fastest policy, by either fill, whose loss on the study's own
    prompts stays below the risk, were each token the next of full depth's text.
    """
    exits = study.loaded.exits
    assert exits is not None, "a pack is loaded"
    named = [Named("certified", entry.risk, entry.policy, entry) for entry in _fitting(study, exits.entries)]
    for risk in RISKS:
        if any(each.risk == risk for each in named):
            continue
        for fill in FILLS:
            loss = token_loss(study.scored)
            space = Space(scored=study.scored, loss=loss, costs=study.costs, fill=fill, streams=1)
            num_layers = study.loaded.config.num_layers
            passing = [each for each in space.all() if each.loss <= risk and each.depth < num_layers]
            if passing:
                best = space.polished(min(passing, key=lambda each: each.seconds), risk)
                named.append(Named("unchecked", risk, best.policy))
    return named


def default_lines(study: Study, prompts: Prompts, named: Sequence[Named], *, timed: int, rounds: int) -> Iterator[Json]:
    """A line for each policy and number of streams, on prompts that chose nothing."""
    settings = [Setting(each.policy) for each in named]
    for streams in STREAMS:
        groups = groups_of(prompts, streams)[: max(1, timed // streams)]
        what = f"{study.name}, {streams} streams"
        chosen = list(dict.fromkeys([FULL, *settings]))
        samples = take_turns(study.loaded, chosen, groups, new_tokens=study.new_tokens, rounds=rounds, what=what)
        for each, setting in zip(named, settings, strict=True):
            runs = samples[setting][0]
            yield {
                "result": "default",
                "what": each.what,
                "risk": each.risk,
                "streams": streams,
                "policy": each.policy.fields(),
                "certified_gain": each.entry.measured.gain if each.entry else None,
                "loss": _loss(study, [prompt for group in groups for prompt in group], runs),
                "predicted": round(predicted_gain(study.scored, setting, study.costs, streams), 4),
                **compare(samples[FULL], samples[setting]),
                "load": load(),
            }


def _fitting(study: Study, entries: Sequence[CertifiedEntry]) -> list[CertifiedEntry]:
    """Those that were measured on this very engine."""
    fitting = []
    for entry in entries:
        try:
            entry.check_fits(circumstances(study.loaded, "compact"))
        except InvalidRequestError:
            continue
        fitting.append(entry)
    return fitting


def _loss(study: Study, prompts: Prompts, runs: Sequence[Sample]) -> float:
    """Mean share of an answer's tokens that plain decoding would not have drawn there."""
    layers = [each for sample in runs for each in sample.layers]
    answers = [
        Answer(prompt, np.array(token_ids, np.int32), np.array(depths, np.int32))
        for prompt, token_ids, depths in zip(prompts, answers_of(runs), layers, strict=True)
    ]
    rig = study.rig
    losses = measured_loss(rig, lambda: (), study.loaded.tokenizer)(answers, lambda done, whole: None)
    return round(float(losses.mean()), 4)
