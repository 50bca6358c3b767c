"""What drafting should reach, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.session import Json
from benchmarks.speculation.contestant import AUTO
from benchmarks.speculation.summary import ALL

LEAST = (("summarization", 1.35, 1.5), ("rag", 1.35, 1.5), ("code", 1.2, 1.4), (ALL, 1.25, 1.4))
"""Task -> the least median of auto against plain, and the stretch."""
WORST_STRETCH = STREAMS_STRETCH = 1.1
NARROW = 0.05
"""Half the width of an interval that says "never slower" with confidence."""


def target_lines(lines: Sequence[Json]) -> Iterator[Json]:
    """A line a target, of those that were measured."""
    auto = {line["task"]: line for line in lines if line["result"] == "method" and line["method"] == AUTO.name}
    for task, target, stretch in LEAST:
        if task in auto:
            line = auto[task]
            median = line["ratio"]["median"]
            yield target_line(task, line, target, stretch, median >= target)
    single = [line for task, line in auto.items() if task != ALL]
    if single:
        worst = min(single, key=lambda line: float(line["ratio"]["median"]))
        yield target_line(f"worst task ({worst['task']})", worst, None, WORST_STRETCH, worst["ratio"]["high"] >= 1)
    for line in lines:
        if line["result"] == "streams":
            what = f"{line['streams']} streams"
            yield target_line(what, line, None, STREAMS_STRETCH, line["ratio"]["high"] >= 1)


def target_line(what: str, line: Json, target: float | None, stretch: float | None, met: bool) -> Json:
    """A method's line against what is asked. `target` None: the interval contains 1 or better."""
    ratio = line["ratio"]
    facts = {"what": what, "ratio": ratio, "end_to_end": line["end_to_end"], "target": target, "stretch": stretch}
    facts |= {"met": met, "stretch_met": None if stretch is None else ratio["median"] >= stretch}
    if target is None:
        facts["narrow"] = ratio["high"] - ratio["low"] <= 2 * NARROW
    shares, plain = line["ms_per_step"], line["plain_ms_per_step"]
    facts["tokens_per_step"] = line["tokens_per_step"]
    facts["step_cost"] = round(sum(shares.values()) / sum(plain.values()), 3)  # against a plain step
    facts["draft_share"] = round(shares["draft"] / sum(shares.values()), 4)  # of the step's time
    facts |= {key: line[key] for key in ("num_draft_tokens", "num_accepted_tokens", "mean_acceptance_length")}
    return {"result": "target", **facts}
