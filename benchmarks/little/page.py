"""docs/student.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.little.asked import PARSING, SUMMARIES
from benchmarks.little.turns import WRITING
from benchmarks.page import Json, machine_line, ratio_text, read_results, table, yes

HEAD = """\
# A student beside its teacher

What a small model that `offramp train drafter --kind student` makes of a model gives beside it: as a [draft
model](drafting.md), which loses nothing, and as the [little model](big-little.md) that writes. This page is made by

```sh
export OFFRAMP_DATA=...                # a folder with spec_bench.jsonl, dolly2k.jsonl and snips_train.jsonl
python -m benchmarks.little --student DIRECTORY --write-page
python -m benchmarks.little --task parsing --student DIRECTORY --write-page
```

from the lines of a run for each task. All is greedy, each answer to its end token or length, one stream, decode only;
ratios are of tokens a second to the big model alone, in turns on the same prompts: the median of the rounds, and a 95 %
interval from a bootstrap over prompts and rounds. A change of quality is paired by prompts. **Every drafted answer
equalled that of plain decoding, id for id**, or there would be no page.
"""
ABOUT = {
    SUMMARIES: """\
## Texts to sum up

The default model and a student of it. Policies are chosen on prompts of Dolly that the student has not seen; what is
reported are Spec-Bench's. Quality is ROUGE-L to the reference, over words. The student's prompts are those of
`scripts/student_prompts.py`.
""",
    PARSING: """\
## Requests to parse

A parser that `offramp train layerskip` made of the default model on SNIPS, and a student of it that was taught on the
prompts that the parser learned from (`scripts/parser_prompts.py`). Policies are chosen on some pairs that neither has
seen; what is reported are others of them. Quality is the share of answers that equal the reference.
""",
}
QUALITY = {SUMMARIES: "ROUGE-L", PARSING: "exact match"}


def write_page(results: Path, page: Path) -> None:
    """Replace `page`."""
    page.write_text(render(read_results(results)), encoding="utf-8")


def render(lines: Sequence[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    by_task = {task: [line for line in lines if line["provenance"]["task"] == task] for task in ABOUT}
    return "\n".join([HEAD, *(_task(task, found) for task, found in by_task.items() if found)])


def _task(task: str, lines: Sequence[Json]) -> str:
    facts = lines[0]["provenance"]
    parts = [ABOUT[task], machine_line(facts), _setting(facts)]
    parts += [f"\nNot measured: {line['what']}, {line['reason']}.\n" for line in lines if line["result"] == "missing"]
    parts += [_student(line) for line in lines if line["result"] == "student"]
    parts.append(_methods([line for line in lines if line["result"] == "method"], QUALITY[task]))
    parts += [_target(line) for line in lines if line["result"] == "target"]
    tried = [line for line in lines if line["result"] == "tried"]
    if tried:
        parts.append(
            "Policies that were tried, on the prompts that one is chosen by:\n\n" + _tried(tried, QUALITY[task])
        )
    return "\n".join(parts)


def _setting(facts: Json) -> str:
    return (
        f"Weights in {facts['weights']}, at most {facts['new_tokens']} new tokens, prompts to choose by and to report: "
        f"{facts['tuning']} and {facts['prompts']}, rounds: {facts['rounds']}.\n"
    )


def _student(line: Json) -> str:
    rates = ", ".join(f"{rate:.3f}" for rate in line["accepted"])
    return (
        f"The student has layers {', '.join(map(str, line['layers']))} of its teacher's {line['num_layers']}; "
        f"{line['tokens']} tokens of {line['answered']} answers, {line['steps']} steps, {line['minutes']:.0f} minutes "
        f"of computing in all. On prompts kept aside its greedy tokens are the teacher's, where those before them "
        f"were, at these rates: {rates}.\n"
    )


def _methods(lines: Sequence[Json], quality: str) -> str:
    head = (
        *("method", "decode", "end to end", "tokens/s: alone, so", "tokens: alone, so"),
        *(f"{quality}, %: alone, so", "change, points", "by the student", "not the big model's own"),
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


def _tried(lines: Sequence[Json], quality: str) -> str:
    head = ("rollback", "fallback", "run", "decode", f"{quality}, %", "change, points", "chosen")
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
