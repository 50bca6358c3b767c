"""docs/student.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.little.turns import WRITING
from benchmarks.page import Json, machine_line, ratio_text, read_results, table, yes

HEAD = """\
# A student beside its teacher

What a small model that `offramp train drafter --kind student` makes of the default model gives beside it: as a [draft
model](drafting.md), which loses nothing, and as the [little model](big-little.md) that writes. This page is made by

```sh
export OFFRAMP_DATA=...                        # a folder with spec_bench.jsonl and dolly2k.jsonl
python -m benchmarks.little --student DIRECTORY --write-page
```

from the lines of one run. Texts are to be summed up: policies are chosen on prompts of Dolly, and what is reported are
Spec-Bench's. All is greedy, each answer to its end token or length, one stream, decode only; ratios are of tokens a
second to the big model alone, in turns on the same prompts: the median of the rounds, and a 95 % interval from a
bootstrap over prompts and rounds. Quality is ROUGE-L to the reference, over words; its change is paired by prompts.
**Every drafted answer equalled that of plain decoding, id for id**, or there would be no page.
"""


def write_page(results: Path, page: Path) -> None:
    """Replace `page`."""
    page.write_text(render(read_results(results)), encoding="utf-8")


def render(lines: Sequence[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    facts = lines[0]["provenance"]
    parts = [HEAD, machine_line(facts), _setting(facts)]
    parts += [f"\nNot measured: {line['what']}, {line['reason']}.\n" for line in lines if line["result"] == "missing"]
    parts += [_student(line) for line in lines if line["result"] == "student"]
    parts.append("## What it gives\n\n" + _methods([line for line in lines if line["result"] == "method"]))
    parts += [_target(line) for line in lines if line["result"] == "target"]
    tried = [line for line in lines if line["result"] == "tried"]
    if tried:
        parts.append("## Policies that were tried\n\nOn the prompts that one is chosen by.\n\n" + _tried(tried))
    return "\n".join(parts)


def _setting(facts: Json) -> str:
    return (
        f"{facts['model']} in {facts['weights']}, at most {facts['new_tokens']} new tokens, prompts to choose by and "
        f"to report: {facts['tuning']} and {facts['prompts']}, rounds: {facts['rounds']}.\n"
    )


def _student(line: Json) -> str:
    rates = ", ".join(f"{rate:.3f}" for rate in line["accepted"])
    return (
        f"The student has layers {', '.join(map(str, line['layers']))} of its teacher's {line['num_layers']}; "
        f"{line['tokens']} tokens of {line['answered']} answers, {line['steps']} steps, {line['minutes']:.0f} minutes "
        f"of computing in all. On prompts kept aside its greedy tokens are the teacher's, where those before them "
        f"were, at these rates: {rates}.\n"
    )


def _methods(lines: Sequence[Json]) -> str:
    head = (
        *("method", "decode", "end to end", "tokens/s: alone, so", "tokens: alone, so"),
        *("ROUGE-L: alone, so", "change, points", "by the student", "not the big model's own"),
    )
    rows = [
        (
            line["method"],
            ratio_text(line["ratio"]),
            ratio_text(line["end_to_end"]),
            f"{line['plain_tokens_per_s']:.0f}, {line['tokens_per_s']:.0f}",
            f"{line['plain_tokens']}, {line['tokens']}",
            f"{100 * line['plain_quality']:.1f}, {100 * line['quality']:.1f}",
            _points(line["change"]),
            f"{line['little_share']:.0%}" if line["method"] == WRITING else "drafts only",
            f"{line['differing_share']:.0%}" if line["method"] == WRITING else "none",
        )
        for line in lines
    ]
    return table(head, rows)


def _target(line: Json) -> str:
    return (
        f"Wanted of the student that writes: at least {line['least_ratio']:g} times the rate, and at most "
        f"{100 * line['most_lost']:g} point lost. Met: {yes(line['met'])}.\n"
    )


def _tried(lines: Sequence[Json]) -> str:
    head = ("rollback", "fallback", "run", "decode", "ROUGE-L", "change, points", "chosen")
    rows = [
        (
            f"{line['rollback']:g}",
            f"{line['fallback']:g}",
            str(line["max_run"]),
            f"{line['ratio']:.2f}",
            f"{100 * line['quality']:.1f}",
            f"{100 * line['change']:+.1f}",
            yes(line["chosen"]),
        )
        for line in lines
    ]
    return table(head, rows)


def _points(change: Json) -> str:
    mean, low, high = (100 * change[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
