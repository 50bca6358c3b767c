"""What each threshold, fill and batch policy buys by batch size: one policy, stricter and looser, everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.early_exit.contestant import FULL, Setting
from benchmarks.early_exit.replay import predicted_gain
from benchmarks.early_exit.study import STREAMS, Study
from benchmarks.early_exit.summary import compare
from benchmarks.early_exit.turns import groups_of, take_turns
from benchmarks.machine import load
from benchmarks.session import Json
from offramp.exits.frozen import FILLS, FrozenPolicy

RANKS = (0.1, 0.4, 0.7)
"""Of the scores at the policy's exit points: where the ladder's thresholds lie, besides the policy's own."""


def ladder_lines(study: Study, policy: FrozenPolicy, *, timed: int) -> Iterator[Json]:
    """Each step of the ladder by fill and streams, `compact`; and the policy itself by the batch policies."""
    for streams in STREAMS:
        settings = {
            (name, fill): Setting(replace(each, fill=FILLS[fill]))
            for name, each in _ladder(study, policy).items()
            for fill in FILLS
        }
        if streams > 1:
            own = replace(policy, fill="propagate")
            settings |= {("as chosen", batching): Setting(own, batching) for batching in ("barrier", "literal")}
        groups = groups_of(study.prompts, streams)[: max(1, timed // streams)]
        what = f"{study.name}, {streams} streams, thresholds"
        chosen = list(dict.fromkeys([FULL, *settings.values()]))
        samples = take_turns(study.loaded, chosen, groups, new_tokens=study.new_tokens, rounds=1, what=what)
        for (name, _), setting in settings.items():
            assert setting.policy is not None
            yield {
                "result": "ladder",
                "model": study.name,
                "step": name,
                "streams": streams,
                "batching": setting.batching,
                "policy": setting.policy.fields(),
                "predicted": round(predicted_gain(study.scored, setting, study.costs, streams), 4),
                **compare(samples[FULL], samples[setting]),
                "load": load(),
            }


def _ladder(study: Study, policy: FrozenPolicy) -> dict[str, FrozenPolicy]:
    """The policy, and the same exit points with one threshold at ranks of their scores, strictest last."""
    scored = study.scored
    columns = [scored.layers.index(layer) for layer in policy.layers]
    scores = scored.measures[policy.measure][scored.asked][:, columns].astype(np.float64)
    known = scores[np.isfinite(scores)]
    steps = {"as chosen": policy}
    for rank in RANKS if len(known) else ():
        level = float(np.quantile(known, rank, method="lower"))
        steps[f"at rank {rank:g}"] = replace(policy, thresholds=(level,) * len(policy.layers))
    return steps
