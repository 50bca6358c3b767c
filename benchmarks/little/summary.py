"""Samples become one line a result: speeds, quality with its change, what the little model wrote, the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.little.asked import Asked
from benchmarks.little.turns import DRAFTING, WRITING, Rounds, Tried, quality
from benchmarks.machine import load
from benchmarks.session import Json, ratio_json
from benchmarks.speculation.contestant import PLAIN, Sample
from benchmarks.speculation.rates import speed_ratio
from benchmarks.speculation.summary import acceptance, decoding, tokens_per_s, whole
from offramp.bench.results.intervals import mean_change
from offramp.llm.loading import LoadedModel

LEAST_RATIO = 1.4
MOST_LOST = 0.01
"""Of ROUGE-L, or of exact matches: one point."""


def tried_lines(tried: Sequence[Tried], chosen: Tried | None) -> Iterator[Json]:
    """A line a policy."""
    for each in tried:
        yield {
            "result": "tried",
            **each.policy.fields(),
            "ratio": round(each.rate_ratio, 4),
            "quality": round(each.quality, 4),
            "change": round(each.change, 4),
            "chosen": each is chosen,
        }


def result_lines(prompts: Sequence[Asked], told: Rounds, loaded: LoadedModel) -> Iterator[Json]:
    """The lossless drafter, the writer if there is one, and whether that meets the targets."""
    yield _line(DRAFTING.name, prompts, told.plain, told.drafting, loaded)
    if not told.writing[0]:
        yield {"result": "missing", "what": WRITING, "reason": "no policy that was tried is faster and as good"}
        return
    samples = [[written.sample for written in runs] for runs in told.writing]
    line = _line(WRITING, prompts, told.plain, samples, loaded)
    answers = told.writing[0]
    tokens = sum(written.sample.tokens for written in answers)
    line |= {
        "little_share": round(sum(written.num_little for written in answers) / tokens, 4),
        "differing_share": round(sum(written.num_differing for written in answers) / tokens, 4),
    }
    yield line
    kept = line["change"]["mean"] >= -MOST_LOST
    yield {
        "result": "target",
        "ratio": line["ratio"],
        "change": line["change"],
        "least_ratio": LEAST_RATIO,
        "most_lost": MOST_LOST,
        "met": line["ratio"]["median"] >= LEAST_RATIO and kept,
    }


def _line(
    name: str, prompts: Sequence[Asked], plain: list[list[Sample]], other: list[list[Sample]], loaded: LoadedModel
) -> Json:
    group = [list(range(len(prompts)))]
    before = [quality(each, sample, loaded) for each, sample in zip(prompts, plain[0], strict=True)]
    after = [quality(each, sample, loaded) for each, sample in zip(prompts, other[0], strict=True)]
    flat = [sample for runs in other for sample in runs]
    return {
        "result": "method",
        "method": name,
        "against": PLAIN.name,
        "prompts": len(prompts),
        "rounds": len(other),
        "ratio": ratio_json(speed_ratio(decoding(plain), decoding(other), group)),
        "end_to_end": ratio_json(speed_ratio(whole(plain), whole(other), group)),
        "plain_tokens_per_s": round(tokens_per_s([sample for runs in plain for sample in runs]), 2),
        "tokens_per_s": round(tokens_per_s(flat), 2),
        "tokens": sum(sample.tokens for sample in other[0]),
        "plain_tokens": sum(sample.tokens for sample in plain[0]),
        "quality": round(float(np.mean(after)), 4),
        "plain_quality": round(float(np.mean(before)), 4),
        "change": paired_change(before, after),
        **acceptance(flat),
        "load": load(),
    }


def paired_change(before: Sequence[float], after: Sequence[float]) -> dict[str, float]:
    """Mean of the differences, with a 95 % bootstrap interval over prompts. [prompts] both"""
    found = mean_change(np.array(before), np.array(after), [None] * len(before))
    return {"mean": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4)}
