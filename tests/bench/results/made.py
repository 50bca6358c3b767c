"""Lines made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offramp.bench.results.lines import FailureLine, ItemLine, RunLine, ScoreLine, TurnLine

PLACE: Mapping[str, object] = {"offramp": "0.1.0", "cpu": "a cpu", "threads": 2, "kernels": "avx2", "load": [0.1]}


def run_line(*methods: str, streams: tuple[int, ...] = (1,), rounds: int = 1, workload: str = "w") -> RunLine:
    return RunLine(
        model="toy",
        source_hash="hash",
        methods={name: {"draft": name} for name in methods},
        exactness=dict.fromkeys(methods, "lossless"),
        workloads={workload: {"sha256": "abc", "tasks": {"a": 1, "b": 1}, "metrics": [], "refused": []}},
        streams=streams,
        rounds=rounds,
        max_tokens=8,
        provenance=PLACE,
    )


def turn_line(method: str, number: int, seconds: float, tokens: int, *, streams: int = 1, joules: float | None = None,
              decode: tuple[float, int] = (1.0, 1), peak: int | None = None) -> TurnLine:  # fmt: skip
    return TurnLine(
        workload="w",
        method=method,
        streams=streams,
        round=number,
        seconds=seconds,
        prompt_tokens=3,
        output_tokens=tokens,
        decode_seconds=decode[0],
        decoded_tokens=decode[1],
        peak_bytes=peak,
        joules=joules,
    )


def item_line(method: str, number: int, item: str, steps: Sequence[tuple[float, int]], *, task: str = "a",
              streams: int = 1, ids: Sequence[int] | None = None) -> ItemLine:  # fmt: skip
    """Its tokens are 0, 1, 2... unless they are given."""
    count = sum(tokens for _, tokens in steps)
    return ItemLine(
        workload="w",
        task=task,
        item=item,
        method=method,
        streams=streams,
        round=number,
        prompt_tokens=3,
        token_ids=tuple(range(count) if ids is None else ids),
        finish_reason="length",
        first_seconds=steps[0][0] / 1000,
        steps=tuple(steps),
    )


def score_line(method: str, item: str, value: float, metric: str = "rouge_l") -> ScoreLine:
    return ScoreLine(workload="w", task="a", item=item, method=method, metric=metric, value=value)


def failure_line(method: str, number: int, item: str | None, *, streams: int = 1) -> FailureLine:
    return FailureLine(workload="w", method=method, item=item, streams=streams, round=number, reason="why")


def renamed(run: RunLine, **changes: object) -> RunLine:
    return replace(run, **changes)  # type: ignore[arg-type]
