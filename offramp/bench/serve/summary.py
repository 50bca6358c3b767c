"""Samples -> the numbers of a load, under the names of `vllm bench serve`. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from offramp.bench.serve.counters import SpeculationCounts
from offramp.bench.serve.load import Load
from offramp.bench.serve.sample import Sample

Fields = dict[str, object]


def summary(load: Load, speculation: SpeculationCounts | None) -> Fields:
    """All fields. Means and throughputs are those of answered requests; null where nothing was measured."""
    samples = sorted(load.samples, key=lambda sample: sample.start)
    answered = [sample for sample in samples if not sample.error]
    duration = load.end - load.start
    known = [sample.prompt_tokens for sample in answered if sample.prompt_tokens is not None]
    total_input = sum(known) if len(known) == len(answered) else None
    total_output = sum(sample.output_tokens for sample in answered)
    return {
        "duration": duration,
        "completed": len(answered),
        "failed": len(samples) - len(answered),
        "cut_off": load.num_cut,
        "not_sent": load.num_unsent,
        "ended_by": load.ended_by,
        "error_counts": dict(Counter(sample.error for sample in samples if sample.error)),
        "total_input_tokens": total_input,
        "total_output_tokens": total_output,
        "request_throughput": _rate(len(answered), duration),
        "output_throughput": _rate(total_output, duration),
        "total_token_throughput": None if total_input is None else _rate(total_input + total_output, duration),
        "max_output_tokens_per_s": peak_tokens_per_second(answered, load.start),
        "max_concurrent_requests": load.max_in_flight,
        **latencies(answered),
        **speculative(speculation),
        **_by_request(samples, load.start),
    }


def latencies(answered: Sequence[Sample]) -> Fields:
    """Mean, median and 99th percentile in milliseconds of what clients wait for."""
    per_token = [sample.seconds_per_token for sample in answered]
    measured = {
        "ttft": [sample.first_token_seconds for sample in answered],
        "tpot": [seconds for seconds in per_token if seconds is not None],
        "itl": [gap for sample in answered for gap in sample.gaps],
        "e2el": [sample.end - sample.start for sample in answered],
    }
    return {
        f"{statistic}_{name}_ms": value
        for name, seconds in measured.items()
        for statistic, value in _statistics(seconds).items()
    }


def peak_tokens_per_second(answered: Sequence[Sample], start: float) -> float | None:
    """Most tokens in one of the load's whole seconds; a request's tokens are spread evenly over its chunks."""
    tokens: dict[int, float] = {}
    for sample in answered:
        share = sample.output_tokens / len(sample.chunk_times)
        for seconds in sample.chunk_times:
            second = int(seconds - start)
            tokens[second] = tokens.get(second, 0.0) + share
    return max(tokens.values(), default=None)


def speculative(counts: SpeculationCounts | None) -> Fields:
    """From the server's counters: a rate in percent, shares by position as fractions. Null without any draft."""
    drafted = counts is not None and counts.drafts > 0 and counts.draft_tokens > 0
    if counts is None or not drafted:
        rate = length = per_position = None
    else:
        rate = 100 * counts.accepted_tokens / counts.draft_tokens
        length = counts.acceptance_length
        per_position = [count / counts.drafts for count in counts.accepted_per_position.values()]
    return {
        "spec_decode_acceptance_rate": rate,
        "spec_decode_acceptance_length": length,
        "spec_decode_num_drafts": counts.drafts if counts else None,
        "spec_decode_draft_tokens": counts.draft_tokens if counts else None,
        "spec_decode_accepted_tokens": counts.accepted_tokens if counts else None,
        "spec_decode_per_position_acceptance_rates": per_position,
    }


def _by_request(samples: Sequence[Sample], start: float) -> Fields:
    """One entry a request that was answered or failed; times in seconds, starts from the load's."""
    return {
        "input_lens": [sample.prompt_tokens for sample in samples],
        "output_lens": [sample.output_tokens for sample in samples],
        "ttfts": [None if sample.error else sample.first_token_seconds for sample in samples],
        "itls": [sample.gaps for sample in samples],
        "errors": [f"{sample.error}: {sample.detail}" if sample.error else "" for sample in samples],
        "start_times": [sample.start - start for sample in samples],
    }


def _statistics(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "median": None, "p99": None}
    milliseconds = 1000 * np.array(values)
    return {
        "mean": float(milliseconds.mean()),
        "median": float(np.median(milliseconds)),
        "p99": float(np.percentile(milliseconds, 99)),
    }


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None
