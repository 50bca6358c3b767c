"""What is asked: the parser's data, seen in training and kept aside, and general prompts for the default model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.data import data_folder
from benchmarks.speculation.prompts import SPEC_BENCH, spread
from benchmarks.speculation.prompts import read_prompts as read_general
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.llm.loading import LoadedModel
from offramp.quality.words import is_one_of
from offramp.train.layerskip.recipe import Recipe
from offramp.train.pairs import Pair, read_pairs, split_pairs

SNIPS = "snips_train.jsonl"


def data_file(name: str) -> Path:
    """A file of the data folder; ends the program with what is missing."""
    return data_folder((name,), holds=f"{SNIPS}, {SPEC_BENCH} and humaneval.jsonl") / name


def parser_pairs(path: Path, provenance: Mapping[str, object], most: int) -> tuple[list[Pair], list[Pair]]:
    """For choosing, pairs that a pack's training saw; for reporting, those that it kept aside: at most so many each.

    The recipe in the pack names the split. Files are sorted by kind: what is taken is spread over them.
    """
    recipe = provenance.get("recipe")
    named = recipe if isinstance(recipe, dict) else {}
    defaults = Recipe()
    share, seed = named.get("held_out", defaults.held_out), named.get("seed", defaults.seed)
    seen, kept = split_pairs(read_pairs(path), share, seed)
    return spread(seen, most), spread(kept, most)


def encode_pairs(pairs: Sequence[Pair], loaded: LoadedModel) -> list[CalibrationPrompt]:
    """Through the chat template, as in training."""
    encode = loaded.template.encode_chat
    return [
        CalibrationPrompt(
            np.array(encode(loaded.tokenizer, [{"role": "user", "content": pair.prompt}]), dtype=np.int32),
            0,
            (pair.reference,),
            f"held-out pair {number}",
        )
        for number, pair in enumerate(pairs)
    ]


def general_prompts(loaded: LoadedModel, per_task: int) -> list[CalibrationPrompt]:
    """So many of each of Spec-Bench's tasks, and code; the tasks in turn."""
    prompts = read_general(data_file(SPEC_BENCH).parent, loaded, per_task)
    return [CalibrationPrompt(np.array(each.token_ids, dtype=np.int32), 0, (), each.name) for each in prompts]


def matches(loaded: LoadedModel, token_ids: Sequence[int], prompt: CalibrationPrompt) -> bool:
    """The answer's text is the reference, white space aside."""
    ends = loaded.eos_token_ids
    text = loaded.tokenizer.decode([token for token in token_ids if token not in ends])
    return is_one_of(text, prompt.references)
