"""docs/early-exit.md from the lines of a run, or of one for each model. Nothing on the page is by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.early_exit.charts import write_charts
from benchmarks.early_exit.tables import (
    agreement_table,
    cell_table,
    cost_table,
    default_table,
    ladder_table,
    sweep_table,
    target_table,
    verdict,
)
from benchmarks.page import Json, machine_line, read_results

KINDS = ("agreement", "costs", "sweep", "cell", "versus", "ladder", "default", "target", "missing")

HEAD = """\
# Early exit

What leaving the network early gains against the same engine at full depth, and what it costs in quality. How exits are
trained: [training.md](training.md); how they work: [architecture.md](architecture.md#early-exits). This page is made by

```sh
export OFFRAMP_DATA=...        # a folder with snips_train.jsonl, spec_bench.jsonl and humaneval.jsonl
python -m benchmarks.early_exit --write-page
```

from the lines of one run, or one for each of the two models, kept in [benchmarks/results](../benchmarks/results), of
which `make pages` makes it again without measuring. [benchmarks/README.md](../benchmarks/README.md) says how they are
measured. *Parser* is a model from `offramp train layerskip` on SNIPS: settings are chosen on pairs that it was
trained on, made stricter, and reported on pairs that its training never saw. *Default* is the default model with an
exit pack, on Spec-Bench's tasks and HumanEval's prompts. All is greedy, each answer to its end token or length, and
decode only: what comes after every stream has its first token.
"""

READING = """\
## How to read it

* A gain is the ratio of tokens a second to full depth by the same engine and weights, in turns on the same prompts. In
  each round seconds and tokens are summed over the prompts; shown is the median of the rounds, and a 95 % interval from
  a bootstrap over prompts and rounds. Early exits may write longer or shorter answers: hence a ratio of rates.
* *Exact match* is the share of answers that equal the reference, *points* its difference from full depth on the same
  prompts with a 95 % interval over prompts. A setting is chosen if it loses half a point at most where it is chosen;
  then its thresholds are moved to a quarter of their distance from 1, since those found on some prompts are too loose
  for others. It meets its target if it loses one point at most where it is reported. *Loss* is the share of an
  answer's tokens that plain decoding would not have drawn there.
* Thresholds belong to the exits beside them; `all` lets every token leave, which makes the model shallower.
* *Deferred* pays for skipped layers later, exactly: it reads less, and computes as much. *Propagate* projects K/V of
  skipped layers at once: it saves both, and what later tokens attend to is approximate.
* Several streams begin together, and the group's last answers run alone: gains of 16 streams hold some of one's.
* *Predicted* replays full depth's own answers with the setting's exits through measured costs: rows of each range,
  heads asked, debts that ride along, K/V projected. It was computed before anything ran, and knows of no changed text.
* Under `compact` the parser's timed answers equalled, id for id, those given in other batches, or there would be no
  page.
"""


def frame() -> str:
    """The page before anything is measured."""
    return HEAD + "\nNot measured on a quiet machine yet.\n"


def write_page(results: Path, page: Path) -> None:
    """Replace `page` and its charts."""
    lines = read_results(results)
    page.write_text(render(lines, write_charts(lines, page)), encoding="utf-8")


def render(lines: Sequence[Json], charts: Mapping[str, str]) -> str:
    """The whole page; charts by name."""
    assert lines, "no results"
    runs = {line["provenance"]["measured_at"]: line["provenance"] for line in lines}
    by_kind = {kind: [line for line in lines if line["result"] == kind] for kind in KINDS}
    chart = {name: charts.get(name, "") for name in charts}
    parts = [HEAD, *(machine_line(facts) + "\n" + _setting(facts) for facts in runs.values())]
    if by_kind["target"]:
        parts.append("## Targets\n\n" + target_table(by_kind["target"]))
    if by_kind["cell"]:
        parts.append(
            "## Parser: the chosen settings, on pairs kept aside\n\n" + cell_table(by_kind["cell"], by_kind["versus"])
        )
    if by_kind["sweep"]:
        parts.append("## Parser: what was tried, on pairs seen in training\n\n" + sweep_table(by_kind["sweep"]))
        parts.append(chart.get("early-exit-parser", ""))
    if by_kind["default"]:
        parts.append(
            "## Default model, general prompts\n\n" + verdict(by_kind["default"]) + default_table(by_kind["default"])
        )
    if by_kind["agreement"]:
        parts.append("## Agreement by exit and measure\n\n" + agreement_table(by_kind["agreement"]))
        parts.append(chart.get("early-exit-agreement", ""))
    depths = [chart[name] for name in ("early-exit-depths-parser", "early-exit-depths-default") if name in chart]
    if depths:
        parts.append("## How deep tokens go\n\n" + "\n".join(depths))
    if by_kind["ladder"]:
        parts.append("## Thresholds, fills and batch policies by streams\n\n" + ladder_table(by_kind["ladder"]))
    if by_kind["costs"]:
        parts.append(
            "## Predicted and measured\n\n"
            + cost_table(by_kind["costs"])
            + "\n"
            + chart.get("early-exit-predicted", "")
        )
    parts += [f"Missing: {line['part']}, {line['reason']}.\n" for line in by_kind["missing"]]
    return "\n".join([*(part for part in parts if part), READING])


def _setting(facts: Json) -> str:
    return (
        f"Weights in {facts['weights']}; at most {facts['examples']} pairs for choosing and as many for reporting, "
        f"{facts['timed']} timed; "
        f"{facts['prompts_per_task']} prompts a task for choosing and as many for reporting, "
        f"at most {facts['new_tokens']} new tokens; {facts['rounds']} rounds.\n"
    )
