"""docs/trained-drafters.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.early_exit.plots import line_chart
from benchmarks.page import Json, machine_line, table
from benchmarks.speculation.tables import (
    methods_table,
    positions_table,
    predictions_table,
    shares_table,
    streams_text,
    targets_table,
)
from benchmarks.trained_drafters.methods import EAGLE, EVERYTHING

CHART = "eagle-curve.svg"
MAIN = (EAGLE.name, EVERYTHING.name)

HEAD = """\
# Trained drafters

What a drafter pack of kind `eagle` (`offramp train drafter`) gives alone, what `auto` gives with everything that it can
use, and what self-speculation through the exits of a parser gives: each beside plain decoding by the same engine, and
beside `auto` without trained weights. This page is made by

```sh
export OFFRAMP_DATA=...                        # a folder with spec_bench.jsonl, humaneval.jsonl, snips_train.jsonl
python -m benchmarks.trained_drafters --write-page
```

from the lines of one run. [Speculation](speculation.md) says how to read the tables; prompts, turns and intervals are
those of that page, greedy. **Every answer equalled that of plain decoding, id for id**, or there would be no page.
"""


def write_page(results: Path, page: Path) -> None:
    """Replace `page` and its chart."""
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line.strip()]
    page.write_text(render(lines), encoding="utf-8")
    for line in lines:
        if line["result"] == "training" and line["curve"]:
            images = page.parent / "images"
            images.mkdir(exist_ok=True)
            (images / CHART).write_text(curve_chart(line), encoding="utf-8")


def render(lines: Sequence[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    facts = lines[0]["provenance"]
    methods, costs, streams, targets = (
        [line for line in lines if line["result"] == kind] for kind in ("method", "costs", "streams", "target")
    )
    parts = [HEAD, machine_line(facts), _setting(facts)]
    parts += [f"\nNot measured: {line['what']}, {line['reason']}.\n" for line in lines if line["result"] == "missing"]
    parts += ["## Targets\n\n" + targets_table(targets)] if targets else []
    if methods:
        parts.append("## By task and method\n\n" + methods_table(methods))
        parts.append("## Acceptance by position\n\n" + positions_table(methods, MAIN))
        parts.append("## Where the time of a step goes\n\n" + shares_table(methods, streams, MAIN))
        parts.append("## Predicted and reached\n\n" + predictions_table(methods, costs, MAIN))
    parts += ["## Several streams\n\n" + streams_text(line) for line in streams]
    parts += [_training(line) for line in lines if line["result"] == "training"]
    return "\n".join(parts)


def _setting(facts: Json) -> str:
    return (
        f"{facts['model']} in {facts['weights']}, at most {facts['new_tokens']} new tokens, prompts a task: "
        f"{facts['prompts_per_task']}, rounds: {facts['rounds']}.\n"
    )


def _training(line: Json) -> str:
    """What the pack says of its own training."""
    tested, rates = line["tested"], [f"{rate:.3f}" for rate in line["accepted"]]
    text = f"## How the drafter was trained\n\n{line['tokens']} tokens of {line['answered']} answers, "
    text += f"{line['steps']} steps, {line['minutes']:.0f} minutes of computing on two cores in all. On prompts kept "
    text += f"aside ({tested[0]} drafts) its tokens are the model's own, where those before them were, at these rates: "
    text += f"{', '.join(rates)}; {line['tokens_a_draft']:.2f} tokens a draft of {len(rates)}.\n"
    if not line["curve"]:
        return text
    head = ("step", "tokens seen", "minutes", *(f"token {place}" for place in range(1, len(rates) + 1)))
    rows = [
        (str(point["step"]), _seen(line, point), f"{point['minutes']:g}", *(f"{rate:.3f}" for rate in point["rates"]))
        for point in line["curve"]
    ]
    chart = f"\n![Rates of draft tokens that stand, over the tokens that were looked at](images/{CHART})\n"
    return text + chart + "\n" + table(head, rows)


def curve_chart(line: Json) -> str:
    """Rates over the tokens looked at in training, an epoch's again each time."""
    series = {
        f"token {place + 1}": [
            (point["step"] * line["batch_rows"] / 1e6, point["rates"][place]) for point in line["curve"]
        ]
        for place in range(len(line["accepted"]))
    }
    return line_chart("Draft tokens that stand", "million tokens looked at", "share", series)


def _seen(line: Json, point: Json) -> str:
    return f"{point['step'] * line['batch_rows'] / 1e6:.2f} M"
