"""docs/speculation.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import Json, machine_line, ratio_text, table
from benchmarks.speculation.contestant import AUTO, PLAIN
from benchmarks.speculation.explain import explain
from benchmarks.speculation.summary import ALL

PEER_NAMES = {"llama": "llama.cpp", "transformers": "transformers"}
KINDS = ("costs", "off", "method", "streams", "target", "lookup", "peer", "missing")
SHOWN_POSITIONS = 10

HEAD = """\
# Speculation

Drafting without any training (`--draft auto` and its parts) beside our own plain decoding, and beside what peers'
prompt lookup gives them. This page is made by

```sh
export OFFRAMP_DATA=...                        # a folder with spec_bench.jsonl and humaneval.jsonl
python -m benchmarks.speculation --write-page
```

from the lines of one run. [benchmarks/README.md](../benchmarks/README.md) says how they are measured. Greedy, the first
turns of Spec-Bench's six tasks through the chat template and HumanEval's prompts as they are (*code*), each answer to
its end token or length. **Every answer equalled that of plain decoding, id for id**, or there would be no page.
"""

READING = """\
## How to read it

* A ratio is that of tokens a second against plain decoding by the same engine and weights; above 1, drafting is faster.
  In each round seconds and tokens are summed over the prompts; shown is the median of the rounds. Its 95 % interval is
  a bootstrap that draws prompts (the same for both sides) and rounds: it is about other prompts like these, too.
* *Decode* counts what comes after the first token, *end to end* the prompt as well, which drafting can't shorten.
* *Met* looks at the median; where no number is asked for, at whether the interval reaches 1.
* The store of earlier outputs begins empty in each round, and each prompt comes once a round: no answer was ever in the
  store when its own prompt came. What the store gives is what other prompts' answers gave, and these have little in
  common; traffic that repeats itself gains more.
* Times and counts by step are those of decoding. *Rest* is planning, judging and committing. *Predicted* and *executor*
  are speed-ups of the executor's part alone: by the cost model before each step, and as measured.
* A peer is compared with its own plain decoding through the same interface, once a prompt; compare ratios, not speeds,
  across engines. *Equal* counts the answers that are those of its plain decoding: rows of one call round differently
  there. The last column is ours on the same prompts (at full length, where a peer's answers are cut shorter).
"""


def frame() -> str:
    """The page before anything is measured."""
    return HEAD + "\nNot measured on a quiet machine yet.\n"


def write_page(results: Path, page: Path) -> None:
    """Replace `page`."""
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line.strip()]
    page.write_text(render(lines), encoding="utf-8")


def render(lines: Sequence[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    facts = lines[0]["provenance"]
    by_kind: dict[str, list[Json]] = {kind: [line for line in lines if line["result"] == kind] for kind in KINDS}
    methods = by_kind["method"]
    parts = [HEAD, machine_line(facts), _setting(facts, by_kind["off"])]
    if by_kind["target"]:
        parts.append(f"## Targets (`{AUTO.draft}`)\n\n" + _targets(by_kind["target"]))
    if methods:
        parts.append("## By task and method\n\n" + _methods(methods))
        parts.append("## Acceptance by position\n\n" + _positions(methods))
        parts.append("## Where the time of a step goes\n\n" + _shares(methods, by_kind["streams"]))
        parts.append("## Predicted and reached\n\n" + _predictions(methods, by_kind["costs"]))
    parts += ["## Several streams\n\n" + _streams(line) for line in by_kind["streams"]]
    parts.append("## Peers' prompt lookup\n\n" + _peers(by_kind))
    return "\n".join([*parts, READING])


def _setting(facts: Json, off: list[Json]) -> str:
    text = f"{facts['model']} in {facts['weights']}, at most {facts['new_tokens']} new tokens, "
    text += f"prompts a task: {facts['prompts_per_task']}, rounds: {facts['rounds']}"
    text += f" ({facts['side_rounds']} of the methods besides `{PLAIN.name}` and `{AUTO.draft}`).\n"
    for line in off:
        text += (
            f"\nWith drafting off, {line['steps']} steps made {line['num_drafts']} drafts and spent "
            f"{line['draft_us_per_step']:.1f} µs each on finding out that there is nothing to draft.\n"
        )
    return text


def _targets(lines: list[Json]) -> str:
    head = ("what", "decode", "end to end", "target", "met", "stretch", "met")
    rows = []
    for line in lines:
        asked = "1 or better" if line["target"] is None else f"at least {line['target']:g}"
        met = _yes(line["met"]) + (" (a wide interval)" if line["met"] and not line.get("narrow", True) else "")
        decode, end = ratio_text(line["ratio"]), ratio_text(line["end_to_end"])
        rows.append((line["what"], decode, end, asked, met, f"{line['stretch']:g}", _yes(line["stretch_met"])))
    missed = [explain(line) for line in lines if not line["met"]]
    return table(head, rows) + ("\n" + "\n".join(missed) + "\n" if missed else "")


def _methods(lines: list[Json]) -> str:
    head = ("task", "method", "decode", "end to end", "plain", "drafting", "tokens a step")
    more = ("accepted / drafted", "mean acceptance length")
    rows = []
    for line in _by_task(lines):
        speeds = (f"{line['plain_tokens_per_s']:.0f} tokens/s", f"{line['tokens_per_s']:.0f} tokens/s")
        counts = f"{line['num_accepted_tokens']} / {line['num_draft_tokens']}{_percent(line)}"
        length = "" if line["mean_acceptance_length"] is None else f"{line['mean_acceptance_length']:.2f}"
        ratios = ratio_text(line["ratio"]), ratio_text(line["end_to_end"])
        rows.append((line["task"], line["method"], *ratios, *speeds, f"{line['tokens_per_step']:.2f}", counts, length))
    return table((*head, *more), rows)


def _positions(lines: list[Json]) -> str:
    chosen = [line for line in _main(lines) if line["num_drafts"]]
    deepest = max((len(line["num_draft_tokens_per_pos"]) for line in chosen), default=0)
    count = min(SHOWN_POSITIONS, deepest)
    rows = []
    for line in _by_task(chosen):
        pairs = list(zip(line["num_accepted_tokens_per_pos"], line["num_draft_tokens_per_pos"], strict=True))[:count]
        cells = [f"{accepted / drafted:.0%} of {drafted}" if drafted else "" for accepted, drafted in pairs]
        rows.append((line["task"], line["method"], *cells, *[""] * (count - len(cells))))
    intro = "Accepted of the tokens drafted at each position after the last token; a tree may have several at one.\n\n"
    return intro + table(("task", "method", *map(str, range(1, count + 1))), rows)


def _shares(lines: list[Json], streams: list[Json]) -> str:
    head = ("task", "method", "draft, ms", "run, ms", "rest, ms", "plain step: draft, run, rest, ms")
    rows = []
    together = [line | {"task": f"{line['streams']} streams", "method": AUTO.name} for line in streams]
    for line in [*_by_task(_main(lines)), *together]:
        cells = [f"{line['ms_per_step'][part]:.3f}" for part in ("draft", "run", "rest")]
        plain = ", ".join(f"{line['plain_ms_per_step'][part]:.3f}" for part in ("draft", "run", "rest"))
        rows.append((line["task"], line["method"], *cells, plain))
    return table(head, rows)


def _predictions(lines: list[Json], costs: list[Json]) -> str:
    text = ""
    for line in costs:
        cells = [f"{rows} rows {ms:.2f}" for rows, ms in line["ms_by_rows"].items()]
        text += (
            f"A step's cost at {line['context']} tokens of context, in ms, as the model began: {', '.join(cells)}.\n\n"
        )
    rows = [
        (
            line["task"],
            line["method"],
            f"{line['predicted']:.2f}",
            f"{line['executor_ratio']:.2f}",
            f"{line['ratio']['median']:.2f}",
        )
        for line in _by_task(_main(lines))
        if line["predicted"] is not None
    ]
    return text + table(("task", "method", "predicted", "executor", "decode"), rows)


def _streams(line: Json) -> str:
    rates = f"{line['plain_tokens_per_s']:.0f} tokens/s plain, {line['tokens_per_s']:.0f} tokens/s with `{AUTO.draft}`"
    return (
        f"{line['streams']} prompts of all tasks at once, {line['rounds']} rounds: {rates} once all have their first "
        f"token, {ratio_text(line['ratio'])} times; end to end {ratio_text(line['end_to_end'])}. "
        f"{line['num_accepted_tokens']} of {line['num_draft_tokens']} draft tokens were accepted.\n"
    )


def _peers(by_kind: dict[str, list[Json]]) -> str:
    head = (
        "task",
        "engine",
        "draft tokens",
        "prompts",
        "decode",
        "end to end",
        "equal",
        f"offramp `{AUTO.draft}`, decode",
    )
    rows = []
    for line in _by_task(by_kind["lookup"]):
        equal = f"{line['equal']} of {line['prompts']}"
        name = f"{PEER_NAMES[line['peer']]} {line['weights']}"
        asked = (line["task"], name, str(line["lookup"]), str(line["prompts"]))
        ratios = ratio_text(line["ratio"]), ratio_text(line["end_to_end"])
        rows.append((*asked, *ratios, equal, "" if line["ours"] is None else ratio_text(line["ours"])))
    text = table(head, rows) if rows else ""
    for line in by_kind["peer"]:
        text += (
            f"\n{PEER_NAMES[line['peer']]} {line['weights']}: {line['version']}; {line['flags']}; K/V {line['kv']}; "
        )
        text += f"{line['prompts']} of {line['prompts_chosen']} prompts fitted into its time.\n"
    for line in by_kind["missing"]:
        absent = PEER_NAMES.get(line["peer"], line["peer"])
        text += f"\nMissing: {absent} {line['weights']}, {line['reason']}.\n"
    return text or "Not measured.\n"


def _main(lines: Sequence[Json]) -> list[Json]:
    """Auto in each task, the other methods in all together."""
    return [line for line in lines if line["method"] == AUTO.name or line["task"] == ALL]


def _by_task(lines: Sequence[Json]) -> list[Json]:
    """Lines of one task together, tasks and lines in the order in which they came."""
    order = list(dict.fromkeys(line["task"] for line in lines))
    return sorted(lines, key=lambda line: order.index(line["task"]))


def _percent(line: Json) -> str:
    drafted = line["num_draft_tokens"]
    return f" ({line['num_accepted_tokens'] / drafted:.0%})" if drafted else ""


def _yes(value: bool) -> str:
    return "yes" if value else "no"
