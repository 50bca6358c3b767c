"""Samples become figures: ratios, speeds, where the time of a step went, and how deep tokens went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.early_exit.contestant import Sample
from benchmarks.early_exit.turns import decode_ratio
from benchmarks.session import Json, ratio_json

Rounds = Sequence[Sequence[Sample]]


def compare(full: Rounds, early: Rounds) -> Json:
    """A setting against full depth in the same turns. The ratio is None where nothing was decoded."""
    before, after = flat(full), flat(early)
    ratio = decode_ratio(full, early)
    return {
        "ratio": ratio_json(ratio) if ratio else None,
        "full_tokens_per_s": _tokens_per_s(before),
        "tokens_per_s": _tokens_per_s(after),
        "full_ms_per_step": _ms_per_step(before),
        "ms_per_step": _ms_per_step(after),
        **_counts(after),
        **depths(after),
        "rounds": len(early),
    }


def depths(samples: Sequence[Sample]) -> Json:
    """Tokens by layers run, without each answer's first one, which comes with the prompt."""
    layers = Counter(layer for sample in samples for answer in sample.layers for layer in answer[1:])
    total = max(1, layers.total())
    shares = {str(layer): round(count / total, 4) for layer, count in sorted(layers.items())}
    return {"depth": round(sum(layer * count for layer, count in layers.items()) / total, 2), "depths": shares}


def flat(rounds: Rounds) -> list[Sample]:
    return [sample for runs in rounds for sample in runs]


def _counts(samples: Sequence[Sample]) -> Json:
    """A decoded token's share of what happened."""
    tokens = max(1, sum(sample.decoded for sample in samples))
    names = ("asked", "headed", "propagated", "paid", "forced", "stays")
    return {name: round(sum(getattr(sample.counts, name) for sample in samples) / tokens, 4) for name in names}


def _tokens_per_s(samples: Sequence[Sample]) -> float:
    seconds = sum(sample.decode_s for sample in samples)
    return round(sum(sample.decoded for sample in samples) / seconds, 2) if seconds > 0 else 0.0


def _ms_per_step(samples: Sequence[Sample]) -> Json:
    """Of the forward pass with all that it asks, and of planning, drawing and committing."""
    steps = max(1, sum(sample.counts.steps for sample in samples))
    run = sum(sample.counts.run_s for sample in samples)
    whole = sum(sample.counts.step_s for sample in samples)
    return {"run": round(1000 * run / steps, 4), "rest": round(1000 * (whole - run) / steps, 4)}
