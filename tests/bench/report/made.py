"""Runs made by hand: every figure on a page about them can be foreseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from offramp.bench.report.given import Given
from offramp.bench.results.cells import ALL, Cell, Interval
from offramp.bench.results.lines import CostLine, FailureLine, ItemLine, Line, RunLine

EXACTNESS = {
    "plain": "lossless",
    "auto": "lossless",
    "suffix": "lossless",
    "eagle": "lossless",
    "calibrated": "calibrated, risk 0.05",
    "unchecked": "unchecked",
}
TASKS = ("chat", "summarization", "code", "math", "translation", "extraction")
GAINS = {"plain": 1.0, "auto": 1.43, "suffix": 1.21, "eagle": 1.38, "calibrated": 1.62, "unchecked": 1.94}
WORDS = ("The", " sky", " is", " blue", " because", " air", " scatters", " short", " waves", " more", ".", "\n")


def around(value: float, part: float = 0.06) -> Interval:
    return Interval(value, value * (1 - part), value * (1 + part))


def cell(method: str = "auto", task: str = ALL, streams: int = 1, gain: float | None = None, **fields: Any) -> Cell:
    """One cell of a lossless method that drafts nothing, unless `fields` say so."""
    plain = method == "plain"
    gain = GAINS.get(method, 1.43) if gain is None else gain
    base = Cell(
        workload="shipped",
        task=task,
        method=method,
        exactness=EXACTNESS.get(method, "lossless"),
        streams=streams,
        num_items=60 if task == ALL else 10,
        num_failed=0,
        rounds=5,
        output_tokens=4800,
        decode_rate=around(187.0 * gain),
        total_rate=around(151.0 * gain),
        decode_ratio=None if plain else around(gain),
        total_ratio=None if plain else around(1 + 0.8 * (gain - 1)),
        first_ms=around(41.5),
        token_ms={"median": 5.31 / gain, "p90": 6.72, "p99": 11.9},
        peak_bytes=311 * 2**20,
        joules_per_token=None,
        equal_share=None if plain else 1.0,
        acceptance_rate=None,
        acceptance_length=None,
        accepted_per_pos=(),
        mean_exit_layer=None,
        exit_counts={},
        quality={"rouge_l": Interval(0.412, 0.38, 0.44)},
        plain_quality={"rouge_l": Interval(0.412, 0.38, 0.44)},
        quality_change={} if plain else {"rouge_l": Interval(0.0, 0.0, 0.0)},
    )
    return replace(base, **fields)


def special(method: str) -> dict[str, Any]:
    """What drafting and exiting methods have besides."""
    if method in ("auto", "suffix", "eagle"):
        return {"acceptance_rate": 0.423, "acceptance_length": 2.48, "accepted_per_pos": (0.71, 0.52, 0.38, 0.22, 0.11)}
    if method in ("calibrated", "unchecked"):
        lost = Interval(-0.008, -0.021, 0.004) if method == "calibrated" else Interval(-0.061, -0.09, -0.035)
        return {
            "equal_share": 0.93 if method == "calibrated" else 0.41,
            "mean_exit_layer": 22.4,
            "exit_counts": {9: 610, 15: 1204, 21: 1310, 30: 4020},
            "quality": {"rouge_l": Interval(0.412 + lost.value, 0.35, 0.43)},
            "quality_change": {"rouge_l": lost},
        }
    return {}


def run_line(methods: Sequence[str] = tuple(EXACTNESS), **fields: Any) -> RunLine:
    base = RunLine(
        model="smollm2-135m",
        source_hash="5f1e",
        methods={name: {} if name == "plain" else {"draft": name} for name in methods},
        exactness={name: EXACTNESS.get(name, "lossless") for name in methods},
        workloads={"shipped": {"sha256": "77aa", "tasks": dict.fromkeys(TASKS, 10), "metrics": ["rouge_l"]}},
        streams=(1, 4, 16),
        rounds=5,
        max_tokens=96,
        provenance={"cpu": "AMD EPYC", "measured_at": "2026-11-30T20:00:00+00:00", "offramp": "0.1.0", "threads": 2},
    )
    return replace(base, **fields)


def item(method: str, task: str, *, num_tokens: int = 60, **fields: Any) -> ItemLine:
    """An answer whose text is told token by token."""
    pieces = tuple(WORDS[place % len(WORDS)] for place in range(num_tokens))
    steps: list[tuple[float, int]] = [(40.0, 1)]
    while (left := num_tokens - sum(count for _, count in steps)) > 0:
        steps.append((45.0 + len(steps), min(left, 1 + len(steps) % 4 if method != "plain" else 1)))
    base = ItemLine(
        workload="shipped",
        task=task,
        item=f"{task}-1",
        method=method,
        streams=1,
        round=0,
        prompt_tokens=30,
        token_ids=tuple(range(num_tokens)),
        finish_reason="length",
        first_seconds=0.04,
        steps=tuple(steps),
        text="".join(pieces),
        pieces=pieces,
    )
    return replace(base, **fields)


def leaving(method: str, task: str, num_tokens: int = 60) -> ItemLine:
    """One whose tokens left early."""
    layers = tuple((9, 15, 30, 21, 30, 30, 15)[place * place % 7] for place in range(num_tokens))
    return item(method, task, num_tokens=num_tokens, exit_layers=layers, steps=tuple((40.0, 1) for _ in layers))


def costs() -> list[CostLine]:
    return [
        CostLine(rows=rows, context=256, measured_ms=4.1 + 0.9 * rows, predicted_ms=(4.1 + 0.9 * rows) * off)
        for rows, off in ((1, 1.0), (2, 1.04), (4, 0.95), (8, 1.08), (16, 0.97), (32, 1.2))
    ]


def cells(methods: Mapping[str, float] = GAINS, streams: Sequence[int] = (1, 4, 16)) -> list[Cell]:
    """All tasks and streams; the more streams, the less is gained."""
    made = []
    for name, gain in methods.items():
        for count in streams:
            for place, task in enumerate((ALL, *TASKS)):
                own = 1 + (gain - 1) * (1 + 0.25 * ((place * 3) % 5 - 2)) / count**0.4
                own = 1.0 if name == "plain" else own
                rate = around(187.0 * own * count**0.7)
                made.append(cell(name, task, count, round(own, 4), decode_rate=rate, **special(name)))
    return made


def given(lines: Sequence[Line] = (), shown: Sequence[Cell] | None = None, **run: Any) -> Given:
    first = run_line(**run)
    return Given(name="results.jsonl", run=first, lines=[first, *lines], cells=cells() if shown is None else shown)


def whole() -> Given:
    """A run with something for every section."""
    lines: list[Line] = [item(name, task) for task in TASKS for name in ("plain", "auto", "suffix", "eagle")]
    lines += [leaving(name, task) for task in TASKS for name in ("calibrated", "unchecked")]
    failure = FailureLine(
        workload="shipped", method="eagle", item="code-7", streams=16, round=2, reason="the context is full"
    )
    return given([*lines, failure, *costs()])
