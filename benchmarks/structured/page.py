"""docs/structured.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import Json, machine_line, ratio_text, read_results, table, yes

KINDS = ("cost", "forced", "compile", "missing")

HEAD = """\
# Structured output

What an answer under a grammar costs beside plain decoding, and what the tokens gain that a grammar forces. This page is
made by

```sh
python -m benchmarks.structured --write-page
```

from the lines of one run, kept in [benchmarks/results](../benchmarks/results), of which `make pages` makes it again
without measuring. [benchmarks/README.md](../benchmarks/README.md) says how they are measured. All is greedy and
decode only: what comes after every stream has its first token.
"""

READING = """\
## How to read it

* *Cost* is the ratio of seconds a token under a grammar that hardly binds, to those of plain decoding of as many
  tokens after the same prompts, drafts off on both sides: above 1, the grammar costs. Milliseconds tell where: *run* is
  the executor, *rest* the mask, the draw and all else.
* *Gain* is the ratio of tokens a second with drafts to those without, under one grammar whose names, constants and
  lists of values fix most of an answer. `forced` drafts what has one continuation and nothing else; `auto` adds the
  drafters that are on by default. **Every answer was the same with drafts as without, id for id**, or there would be no
  page.
* In each round seconds and tokens are summed over the prompts; shown is the median of the rounds, and a 95 % interval
  from a bootstrap over prompts and rounds. A cost is met by its median, a gain if the whole interval is above 1.
* *Compile* is the time from a request's schema to the first mask, of a grammar that was not seen before; the vocabulary
  is read once a model.
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
    parts = [HEAD, machine_line(facts), _setting(facts)]
    if by_kind["cost"]:
        parts.append("## Cost of a grammar\n\n" + _costs(by_kind["cost"]))
    if by_kind["forced"]:
        parts.append("## Gain from forced tokens\n\n" + _gains(by_kind["forced"]))
    if by_kind["compile"]:
        parts.append("## Compile\n\n" + _compiles(by_kind["compile"]))
    parts += [
        f"Missing: {line['grammar']}, {line['streams']} streams: {line['reason']}.\n" for line in by_kind["missing"]
    ]
    return "\n".join([*parts, READING])


def _setting(facts: Json) -> str:
    return (
        f"Model {facts['model']}, weights in {facts['weights']}, at most {facts['tokens']} new tokens after each of "
        f"{facts['prompts']} prompts, {facts['rounds']} rounds.\n"
    )


def _costs(lines: Sequence[Json]) -> str:
    head = ("grammar", "streams", "cost", "target", "met", "tokens", "plain step: run, rest, ms", "step: run, rest, ms")
    rows = [
        (
            line["grammar"],
            str(line["streams"]),
            ratio_text(line["ratio"]),
            f"at most {line['target']:g}",
            yes(line["met"]),
            str(line["tokens"]),
            _step(line["plain_ms_per_step"]),
            _step(line["ms_per_step"]),
        )
        for line in lines
    ]
    return table(head, rows)


def _gains(lines: Sequence[Json]) -> str:
    head = (
        *("drafts", "streams", "gain", "end to end", "target", "met"),
        *("tokens/s without, with", "tokens a step", "accepted of drafted"),
    )
    rows = [
        (
            f"`{line['drafts']}`",
            str(line["streams"]),
            ratio_text(line["ratio"]),
            ratio_text(line["end_to_end"]),
            "" if line["target"] is None else f"above {line['target']:g}",
            yes(line["met"]),
            f"{line['plain_tokens_per_s']:.0f}, {line['tokens_per_s']:.0f}",
            f"{line['tokens_per_step']:.2f}",
            f"{line['num_accepted_tokens']} of {line['num_draft_tokens']}",
        )
        for line in lines
    ]
    return table(head, rows)


def _compiles(lines: Sequence[Json]) -> str:
    rows = [
        (line["what"], f"{line['median_ms']:.1f}", f"{line['range_ms'][0]:.1f} to {line['range_ms'][1]:.1f}")
        for line in lines
    ]
    return table(("what", "median, ms", "range"), rows)


def _step(shares: Json) -> str:
    return f"{shares['run']:.3f}, {shares['draft'] + shares['rest']:.3f}"
