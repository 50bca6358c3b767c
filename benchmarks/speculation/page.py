"""docs/speculation.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import Json, machine_line, ratio_text, read_results, table
from benchmarks.speculation.contestant import AUTO, PLAIN
from benchmarks.speculation.tables import (
    by_task,
    methods_table,
    positions_table,
    predictions_table,
    shares_table,
    streams_text,
    targets_table,
)

MAIN = (AUTO.name,)
PEER_NAMES = {"llama": "llama.cpp", "transformers": "transformers"}
KINDS = ("costs", "off", "method", "streams", "target", "lookup", "peer", "missing")

HEAD = """\
# Speculation

Drafting without any training (`--draft auto` and its parts) beside our own plain decoding, and beside what peers'
prompt lookup gives them. This page is made by

```sh
export OFFRAMP_DATA=...                        # a folder with spec_bench.jsonl and humaneval.jsonl
python -m benchmarks.speculation --write-page
```

from the lines of one run, kept in [benchmarks/results](../benchmarks/results), of which `make pages` makes it again
without measuring. [benchmarks/README.md](../benchmarks/README.md) says how they are measured. Greedy, the first
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
    lines = read_results(results)
    page.write_text(render(lines), encoding="utf-8")


def render(lines: Sequence[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    facts = lines[0]["provenance"]
    by_kind: dict[str, list[Json]] = {kind: [line for line in lines if line["result"] == kind] for kind in KINDS}
    methods = by_kind["method"]
    parts = [HEAD, machine_line(facts), _setting(facts, by_kind["off"])]
    if by_kind["target"]:
        parts.append(f"## Targets (`{AUTO.draft}`)\n\n" + targets_table(by_kind["target"]))
    if methods:
        parts.append("## By task and method\n\n" + methods_table(methods))
        parts.append("## Acceptance by position\n\n" + positions_table(methods, MAIN))
        parts.append("## Where the time of a step goes\n\n" + shares_table(methods, by_kind["streams"], MAIN))
        parts.append("## Predicted and reached\n\n" + predictions_table(methods, by_kind["costs"], MAIN))
    parts += ["## Several streams\n\n" + streams_text(line) for line in by_kind["streams"]]
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
    for line in by_task(by_kind["lookup"]):
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
