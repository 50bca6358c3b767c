"""What is asked: Spec-Bench's first turns through the chat template, HumanEval's prompts as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.data import data_folder, json_lines
from offramp.llm.loading import LoadedModel
from offramp.llm.prompts import encode_prompt

SPEC_BENCH, HUMANEVAL = "spec_bench.jsonl", "humaneval.jsonl"
TASKS = ("multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag")
"""Of Spec-Bench, as its file names them."""
CODE = "code"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and where they come from."""

    task: str
    name: str
    token_ids: list[int]


def spec_bench_folder() -> Path:
    """Where both files are; ends the program with what is missing."""
    return data_folder((SPEC_BENCH, HUMANEVAL), holds=f"{SPEC_BENCH} (Spec-Bench's questions) and {HUMANEVAL}")


def read_prompts(folder: Path, loaded: LoadedModel, per_task: int) -> list[Prompt]:
    """So many of each task, spread over its file, the tasks in turn."""
    by_task: dict[str, list[dict[str, Any]]] = {task: [] for task in (*TASKS, CODE)}
    for line in json_lines(folder / SPEC_BENCH):
        by_task[line["task"]].append(line)
    by_task[CODE] = json_lines(folder / HUMANEVAL)
    chosen = [
        [Prompt(task, line["id"], _encode(task, line["prompt"], loaded)) for line in spread(lines, per_task)]
        for task, lines in by_task.items()
    ]
    return [prompt for turn in zip_longest(*chosen) for prompt in turn if prompt is not None]


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """So many items (all, if there are fewer), evenly from first to last."""
    count = min(count, len(items))
    return [items[index * len(items) // count] for index in range(count)]


def subset(prompts: Sequence[Prompt], per_task: int) -> list[int]:
    """Places of so many prompts of each task, in order."""
    places: list[int] = []
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        places += spread([place for place, prompt in enumerate(prompts) if prompt.task == task], per_task)
    return sorted(places)


def _encode(task: str, text: str, loaded: LoadedModel) -> list[int]:
    if task == CODE:
        return encode_prompt(text, loaded.tokenizer, loaded.bos_token_id)
    return loaded.template.encode_chat(loaded.tokenizer, [{"role": "user", "content": text}])
