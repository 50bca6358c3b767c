"""Settings take turns on the same groups of prompts, and what they took is set against full depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.early_exit.contestant import FULL, Contestant, Sample, Setting
from benchmarks.ratios import Ratio
from benchmarks.session import note
from benchmarks.speculation.rates import Runs, speed_ratio
from offramp.bench.run.rounds import order
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.llm.loading import LoadedModel

Prompts = Sequence[CalibrationPrompt]
Samples = dict[Setting, list[list[Sample]]]
"""Setting -> a list a round -> a sample a group."""

WARM_TOKENS = 4


def groups_of(prompts: Prompts, streams: int, *, rest: bool = False) -> list[Prompts]:
    """Prompts that are answered together. All groups are full unless the rest is wanted, or nothing else is there."""
    whole = len(prompts) if rest else len(prompts) - len(prompts) % streams or len(prompts)
    return [prompts[start : start + streams] for start in range(0, whole, streams)]


def take_turns(
    loaded: LoadedModel,
    settings: Sequence[Setting],
    groups: Sequence[Prompts],
    *,
    new_tokens: int,
    rounds: int,
    what: str,
) -> Samples:
    """Each group by each setting, one right after the other; who begins rotates, forwards and then backwards."""
    streams = max(map(len, groups))
    contestants = {setting: Contestant(loaded, setting, streams=streams) for setting in settings}
    for contestant in contestants.values():
        contestant.run(groups[0], WARM_TOKENS)
    samples: Samples = {setting: [] for setting in contestants}
    for number in range(rounds):
        for runs in samples.values():
            runs.append([])
        for place, group in enumerate(groups):
            for setting in order(list(contestants), number + place):
                samples[setting][-1].append(contestants[setting].run(group, new_tokens))
        size = f"{len(contestants)} settings, {len(groups)} groups of {streams}"
        note(f"  {what}: round {number + 1} of {rounds}, {size}")
    return samples


def decode_ratio(full: Sequence[Sequence[Sample]], other: Sequence[Sequence[Sample]]) -> Ratio | None:
    """How many times the tokens a second of `full`, decoding alone; None where one of them decoded nothing."""
    plain, early = _runs(full), _runs(other)
    if not (plain[..., 1].sum(axis=1).all() and early[..., 1].sum(axis=1).all()):
        return None
    return speed_ratio(plain, early, [list(range(plain.shape[1]))])


def against_full(samples: Samples, setting: Setting) -> Ratio | None:
    """The same for a setting of turns in which full depth took part."""
    return decode_ratio(samples[FULL], samples[setting])


def _runs(rounds: Sequence[Sequence[Sample]]) -> Runs:
    return np.array([[(sample.decode_s, sample.decoded) for sample in runs] for runs in rounds], dtype=np.float64)
