"""Texts to sum up, each with a reference: some to choose a policy on, and Spec-Bench's to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import json_lines
from benchmarks.speculation.prompts import SPEC_BENCH, spread
from offramp.bench.workloads.item import Item
from offramp.bench.workloads.prompt_ids import prompt_ids
from offramp.llm.loading import LoadedModel

DOLLY = "dolly2k.jsonl"
SUMMARIZATION = "summarization"
WORDS = ("summar", "tl;dr", "main points", "in a few sentences", "bullet")
"""One of them stands at an end of a prompt that asks for a summary."""
LONG, ENDS = 600, 200
"""Characters: of a text worth summing up, and of the ends that are looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, encoded, with its reference."""

    item: Item
    token_ids: list[int]


def tuning_prompts(folder: Path, loaded: LoadedModel, most: int) -> list[Asked]:
    """Dolly's that ask for a summary of a text that they give."""
    return _asked(folder / DOLLY, loaded, most, lambda line: asks_for_summary(line["prompt"]))


def reported_prompts(folder: Path, loaded: LoadedModel, most: int) -> list[Asked]:
    """Spec-Bench's."""
    return _asked(folder / SPEC_BENCH, loaded, most, lambda line: line["task"] == SUMMARIZATION)


def _asked(path: Path, loaded: LoadedModel, most: int, wanted: Callable[[dict[str, Any]], bool]) -> list[Asked]:
    chosen = spread([line for line in json_lines(path) if line.get("reference") and wanted(line)], most)
    return [Asked(item, prompt_ids(item, loaded)) for item in map(_item, chosen)]


def _item(line: dict[str, Any]) -> Item:
    return Item(name=line["id"], task=SUMMARIZATION, content=line["prompt"], references=(line["reference"],))


def asks_for_summary(prompt: str) -> bool:
    """Of a long text that stands in it."""
    text = prompt.lower()
    return len(text) > LONG and any(word in end for word in WORDS for end in (text[:ENDS], text[-ENDS:]))
