"""What an answer took: OpenAI's `usage`, and our `offramp` object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from offramp.llm.output import Report, RequestOutput
from offramp.serve.pair import as_written


def merged(reports: Sequence[Report]) -> Report:
    """One report of several requests that ran together: sums, the longest times, the speed of all of them."""
    first, *others = reports
    whole = first
    for report in others:
        whole = _sum(whole, report)
    later = sum((report.tokens_per_second or 0.0) * report.decode_seconds for report in reports)
    return replace(whole, tokens_per_second=later / whole.decode_seconds if later else None)


def usage(report: Report, *, predicted: bool) -> dict[str, object]:
    """Tokens, as OpenAI counts them; with `predicted`, drafts count as tokens of a predicted output."""
    counts: dict[str, object] = {
        "prompt_tokens": report.prompt_tokens,
        "completion_tokens": report.output_tokens,
        "total_tokens": report.prompt_tokens + report.output_tokens,
        "prompt_tokens_details": {"cached_tokens": report.cached_tokens},
    }
    if predicted:
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": report.num_accepted_tokens,
            "rejected_prediction_tokens": report.num_draft_tokens - report.num_accepted_tokens,
            "reasoning_tokens": 0,
        }
    return counts


def offramp_object(
    outputs: Sequence[RequestOutput], report: Report, kind: str, pipeline: Mapping[str, object] | None = None
) -> dict[str, object] | None:
    """What ran; `kind` is the request's `report`, `pipeline` what is told of the one that chose the model."""
    if kind == "none":
        return None
    seeds = [output.outputs[0].seed for output in outputs]
    facts: dict[str, object] = {
        "mode": report.mode,
        "mode_reason": report.mode_reason,
        "risk": report.risk,
        "exits": report.exits,
        "draft": report.draft,
        "verifier": report.verifier,
        "seed": seeds[0] if len(seeds) == 1 else seeds,
        "mean_exit_layer": report.mean_exit_layer,
        "exact_kv": report.exact_kv,
        "num_drafts": report.num_drafts,
        "num_draft_tokens": report.num_draft_tokens,
        "num_accepted_tokens": report.num_accepted_tokens,
        "num_emitted_tokens": report.num_emitted_tokens,
        "num_draft_tokens_per_pos": list(report.num_draft_tokens_per_pos),
        "num_accepted_tokens_per_pos": list(report.num_accepted_tokens_per_pos),
        "draft_acceptance_rate": report.draft_acceptance_rate,
        "mean_acceptance_length": report.mean_acceptance_length,
        "little": report.little,
        "num_little_tokens": report.num_little_tokens,
        "num_differing_tokens": report.num_differing_tokens,
        "num_fallbacks": report.num_fallbacks,
        "num_rollbacks": report.num_rollbacks,
        "tokens_per_second": report.tokens_per_second,
    }
    if pipeline is not None:
        facts["pipeline"] = dict(as_written(pipeline, report))
    if kind == "tokens":
        facts["tokens"] = [tokens for output in outputs for tokens in _tokens(output)]
    return facts


def _tokens(output: RequestOutput) -> list[list[dict[str, object]]]:
    """Each choice's tokens."""
    return [
        [
            {"id": token_id, "exit_layer": layers, "draft": drafted}
            for token_id, layers, drafted in zip(
                choice.token_ids, choice.exit_layers or (), choice.drafted or (), strict=True
            )
        ]
        for choice in output.outputs
    ]


def _sum(one: Report, other: Report) -> Report:
    num_tokens = one.output_tokens + other.output_tokens
    layers = one.mean_exit_layer * one.output_tokens + other.mean_exit_layer * other.output_tokens
    return replace(
        one,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        output_tokens=num_tokens,
        prefill_seconds=max(one.prefill_seconds, other.prefill_seconds),
        decode_seconds=max(one.decode_seconds, other.decode_seconds),
        finish_reasons=one.finish_reasons + other.finish_reasons,
        mean_exit_layer=layers / num_tokens if num_tokens else one.mean_exit_layer,
        exact_kv=one.exact_kv and other.exact_kv,
        num_drafts=one.num_drafts + other.num_drafts,
        num_draft_tokens=one.num_draft_tokens + other.num_draft_tokens,
        num_accepted_tokens=one.num_accepted_tokens + other.num_accepted_tokens,
        num_emitted_tokens=one.num_emitted_tokens + other.num_emitted_tokens,
        num_draft_tokens_per_pos=_added(one.num_draft_tokens_per_pos, other.num_draft_tokens_per_pos),
        num_accepted_tokens_per_pos=_added(one.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos),
        num_little_tokens=one.num_little_tokens + other.num_little_tokens,
        num_differing_tokens=one.num_differing_tokens + other.num_differing_tokens,
        num_fallbacks=one.num_fallbacks + other.num_fallbacks,
        num_rollbacks=one.num_rollbacks + other.num_rollbacks,
    )


def _added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))
