"""What is asked, each with a reference: some to choose a policy on, others to report.

Texts to sum up are Dolly's and Spec-Bench's; requests to parse are pairs of SNIPS that the parser's training kept
aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import json_lines
from benchmarks.early_exit.data import SNIPS, parser_pairs
from benchmarks.speculation.prompts import SPEC_BENCH, spread
from offramp.bench.workloads.item import Item
from offramp.bench.workloads.prompt_ids import prompt_ids
from offramp.llm.loading import LoadedModel

DOLLY = "dolly2k.jsonl"
SUMMARIZATION = "summarization"
SUMMARIES, PARSING = "summaries", "parsing"
FILES = {SUMMARIES: (SPEC_BENCH, DOLLY), PARSING: (SNIPS,)}
"""That a task's prompts are from."""
WORDS = ("summar", "tl;dr", "main points", "in a few sentences", "bullet")
"""One of them stands at an end of a prompt that asks for a summary."""
LONG, ENDS = 600, 200
"""Characters: of a text worth summing up, and of the ends that are looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, encoded, with its reference. Its item names the metric."""

    item: Item
    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Prompts:
    """None of one part is in the other."""

    tuning: list[Asked]
    reported: list[Asked]


def summaries(folder: Path, loaded: LoadedModel, num_tuning: int, num_reported: int) -> Prompts:
    """At most so many: Dolly's that ask for a summary of a text that they give, and Spec-Bench's."""

    def asked(name: str, most: int, wanted: Callable[[dict[str, Any]], bool]) -> list[Asked]:
        lines = spread([line for line in json_lines(folder / name) if line.get("reference") and wanted(line)], most)
        return [
            _asked(line["id"], SUMMARIZATION, line["prompt"], line["reference"], "rouge_l", loaded) for line in lines
        ]

    return Prompts(
        asked(DOLLY, num_tuning, lambda line: asks_for_summary(line["prompt"])),
        asked(SPEC_BENCH, num_reported, lambda line: line["task"] == SUMMARIZATION),
    )


def parsing(
    folder: Path, provenance: Mapping[str, object], loaded: LoadedModel, num_tuning: int, num_reported: int
) -> Prompts:
    """At most so many of the pairs that a parser of this provenance has not seen."""
    _, kept = parser_pairs(folder / SNIPS, provenance, num_tuning + num_reported)
    asked = [
        _asked(f"pair {number}", PARSING, pair.prompt, pair.reference, "exact_match", loaded)
        for number, pair in enumerate(kept)
    ]
    tuning = spread(asked, num_tuning)
    names = {each.item.name for each in tuning}
    return Prompts(tuning, [each for each in asked if each.item.name not in names])


def asks_for_summary(prompt: str) -> bool:
    """Of a long text that stands in it."""
    text = prompt.lower()
    return len(text) > LONG and any(word in end for word in WORDS for end in (text[:ENDS], text[-ENDS:]))


def _asked(name: str, task: str, prompt: str, reference: str, metric: str, loaded: LoadedModel) -> Asked:
    item = Item(name=name, task=task, content=prompt, references=(reference,), metrics=(metric,))
    return Asked(item, prompt_ids(item, loaded))
