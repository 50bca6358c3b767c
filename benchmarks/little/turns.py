"""Policies are tried on some prompts; the chosen one, plain decoding and a lossless drafter take turns on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.little.asked import PARSING, SUMMARIES, Asked
from benchmarks.little.writer import Writer, Written
from benchmarks.session import note
from benchmarks.speculation.contestant import PLAIN, Contestant, Method, Sample
from benchmarks.speculation.summary import tokens_per_s
from benchmarks.speculation.turns import TokensDifferError
from offramp.bench.quality import METRICS
from offramp.bench.run.rounds import order
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.draft import DRAFT_MODEL
from offramp.engine.cost_table import CostTable
from offramp.llm.loading import LoadedModel

DRAFTING = Method("student drafts", DRAFT_MODEL, store=False, weights=True)
WRITING = "student writes"
GRIDS = {
    SUMMARIES: tuple(product((2.0, 3.0, 5.0, 8.0), (0.0, 0.3, 0.6), (8, 16))),
    PARSING: tuple(product((0.5, 1.0, 2.0, 5.0), (0.3, 0.6, 0.9), (8, 16))),  # each token counts there
}
"""Rollback, fallback and run of the policies that are tried."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A policy on the prompts that it is chosen by; ratio and change against plain decoding on the same."""

    policy: BigLittlePolicy
    rate_ratio: float
    quality: float
    change: float


def quality(asked: Asked, sample: Sample, loaded: LoadedModel) -> float:
    """Of the answer, by the metric of what was asked."""
    [metric] = asked.item.metrics
    [token_ids] = sample.token_ids
    text = loaded.tokenizer.decode([token for token in token_ids if token not in loaded.eos_token_ids])
    return METRICS[metric](asked.item, text)


def try_policies(
    loaded: LoadedModel,
    table: CostTable,
    prompts: Sequence[Asked],
    policies: Sequence[BigLittlePolicy],
    new_tokens: int,
) -> list[Tried]:
    """Each once on every prompt, plain decoding first."""
    plain = Contestant(loaded, table, PLAIN)
    before = [plain.run([each.token_ids], new_tokens) for each in prompts]
    wanted = [quality(each, sample, loaded) for each, sample in zip(prompts, before, strict=True)]
    tried = []
    for number, policy in enumerate(policies):
        writer = Writer(loaded, table, policy)
        after = [writer.run(each.token_ids, new_tokens).sample for each in prompts]
        reached = [quality(each, sample, loaded) for each, sample in zip(prompts, after, strict=True)]
        ratio = tokens_per_s(after) / tokens_per_s(before)
        tried.append(Tried(policy, ratio, float(np.mean(reached)), float(np.mean(reached) - np.mean(wanted))))
        note(f"  {number + 1} of {len(policies)}: {policy} {ratio:.2f}, {tried[-1].change:+.4f}")
    return tried


def choose(tried: Sequence[Tried], most_lost: float) -> Tried | None:
    """The fastest of those that lose at most so much; None where none is faster than plain decoding."""
    kept = [each for each in tried if each.change >= -most_lost and each.rate_ratio > 1]
    return max(kept, key=lambda each: each.rate_ratio, default=None)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Samples by round and prompt."""

    plain: list[list[Sample]]
    drafting: list[list[Sample]]
    writing: list[list[Written]]  # empty without a policy


def take_turns(
    loaded: LoadedModel,
    table: CostTable,
    prompts: Sequence[Asked],
    policy: BigLittlePolicy | None,
    *,
    new_tokens: int,
    rounds: int,
) -> Rounds:
    """Each prompt by each in turn; who begins rotates. A drafted answer that differs from plain decoding's raises."""
    told = Rounds([], [], [])
    for number in range(rounds):
        plain, drafting = Contestant(loaded, table, PLAIN), Contestant(loaded, table, DRAFTING)
        writer = None if policy is None else Writer(loaded, table, policy)
        names = [PLAIN.name, DRAFTING.name] + ([WRITING] if writer is not None else [])
        told.plain.append([])
        told.drafting.append([])
        told.writing.append([])
        for place, each in enumerate(prompts):
            for name in order(names, number + place):
                if name == PLAIN.name:
                    told.plain[-1].append(plain.run([each.token_ids], new_tokens))
                elif name == DRAFTING.name:
                    told.drafting[-1].append(drafting.run([each.token_ids], new_tokens))
                elif writer is not None:
                    told.writing[-1].append(writer.run(each.token_ids, new_tokens))
            if told.plain[-1][-1].token_ids != told.drafting[-1][-1].token_ids:
                raise TokensDifferError(f"{each.item.name}: the drafted answer is not plain decoding's")
        note(f"  round {number + 1} of {rounds}")
    return told
