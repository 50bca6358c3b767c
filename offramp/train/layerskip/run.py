"""`offramp train layerskip`: from a model and pairs to a model directory, its exit pack and the adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.llm.loading import read_template, read_tokenizer
from offramp.model.checkpoint import Checkpoint
from offramp.native.threads import default_threads
from offramp.prompt_lines import file_hash
from offramp.train.adapter import make_adapter, read_adapter, write_adapter
from offramp.train.clock import ComputeClock
from offramp.train.decoder import Decoder, read_decoder
from offramp.train.hf_directory import check_writable, write_directory
from offramp.train.layerskip.batches import Example, answer_vocabulary, encode_pairs, shared_prefix
from offramp.train.layerskip.loop import Course, train
from offramp.train.layerskip.recipe import Recipe, Settings, default_exits
from offramp.train.layerskip.shared_pack import write_shared_pack
from offramp.train.layerskip.validation import measure
from offramp.train.layerskip.vocabulary import choose_vocabularies
from offramp.train.low_rank import train_low_rank, train_whole
from offramp.train.merge import merged_weights, take_changes, trained_weights
from offramp.train.pairs import Pair, read_pairs, split_pairs
from offramp.train.precision import matrix_dtype
from offramp.train.say import Say
from offramp.train.source import open_source
from offramp.train.state import TrainingState, begin

CHECKPOINT, HELD_OUT = "checkpoint.pt", "held_out.jsonl"
ADAPTER = "training/adapter.safetensors"
"""Below the directory that is written."""

QUICK = 48  # held-out examples that are measured along the way, at QUICK_EXITS of the exits
QUICK_EXITS = 4
MEASURED = 512  # at the end
NORM_RATE = 0.1
"""Learning rate of norm weights, as a part of that of the matrices' changes: they start where they should be."""
CHOOSING = 256  # examples, of those trained on, that decide how many tokens each exit knows

Figures = Mapping[str, Any]
"""What came of a training: steps, minutes, and shares of the held-out data by exit."""


@dataclass(frozen=True, slots=True)
class Data:
    """Examples, and what they have in common."""

    trained: Sequence[Example]
    held_out: Sequence[Example]
    prefix: tuple[int, ...]
    ranked: Ids  # that the exits may know, most frequent first
    held_out_pairs: Sequence[Pair]

    def write_held_out(self, path: Path) -> None:
        """For who wants prompts that the training never saw."""
        lines = [json.dumps({"prompt": pair.prompt, "reference": pair.reference}) for pair in self.held_out_pairs]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fine_tune(
    model: str, data_file: Path, directory: Path, recipe: Recipe, *, work: Path, threads: int | None, say: Say
) -> Figures:
    """Train, resuming what lies in `work`, and write the directory. Raises OfframpError."""
    checkpoint = open_source(model)
    check_writable(checkpoint, directory)
    recipe = _with_exits(recipe, checkpoint.config.num_layers)
    torch.set_num_threads(threads or default_threads())
    recipe = replace(recipe, workers=recipe.workers or torch.get_num_threads())
    data = _read(checkpoint, data_file, recipe, say)
    source = checkpoint.weights("f32")
    decoder = read_decoder(source, matrix_dtype())
    settings = Settings(recipe=recipe, model=checkpoint.source_hash(), data=file_hash(data_file))
    state = _trained(decoder, data, settings, work, say)
    if recipe.rank is None:
        vocabularies = _vocabularies(decoder, data, recipe)
        figures = _figures(state, decoder, data, recipe, data_file)
        write_directory(checkpoint, trained_weights(source, decoder), directory)
    else:
        adapter = make_adapter(state.trained, len(decoder.layers), data.ranked, settings.model, recipe.as_json())
        take_changes(decoder, adapter)  # as they are kept: what is measured is what is written
        vocabularies = _vocabularies(decoder, data, recipe)
        figures = _figures(state, decoder, data, recipe, data_file)
        write_directory(checkpoint, merged_weights(source, adapter), directory)
        _adapter_place(directory).parent.mkdir()
        write_adapter(_adapter_place(directory), replace(adapter, figures=figures, vocabularies=vocabularies))
    write_shared_pack(directory, model, data.ranked, vocabularies, recipe, figures)
    return figures


def rebuild(model: str, adapter_file: Path, directory: Path) -> Figures:
    """The directory that an earlier training wrote, from the adapter that it kept. Raises OfframpError."""
    checkpoint = open_source(model)
    check_writable(checkpoint, directory)
    adapter = read_adapter(adapter_file, checkpoint.config)
    adapter.check_model(checkpoint.source_hash())
    write_directory(checkpoint, merged_weights(checkpoint.weights("f32"), adapter), directory)
    _adapter_place(directory).parent.mkdir()
    shutil.copyfile(adapter_file, _adapter_place(directory))
    recipe = Recipe.from_json(adapter.recipe)
    write_shared_pack(directory, model, adapter.ranked, adapter.vocabularies, recipe, adapter.figures)
    return adapter.figures


def _trained(decoder: Decoder, data: Data, settings: Settings, work: Path, say: Say) -> TrainingState:
    recipe = settings.recipe
    trained = train_whole(decoder) if recipe.rank is None else train_low_rank(decoder, recipe.rank, recipe.seed)
    clock = ComputeClock(torch.get_num_threads())
    state = begin(trained, settings, work / CHECKPOINT, clock, norm_rate=NORM_RATE)
    work.mkdir(parents=True, exist_ok=True)  # not before data and checkpoint are known to do
    data.write_held_out(work / HELD_OUT)
    num_values = sum(tensor.numel() for tensor in trained.values())
    say(f"{len(data.trained)} examples to train on, {len(data.held_out)} held out; {num_values / 1e6:.2f} M values")
    say(f"exits after {', '.join(map(str, recipe.exits))} layers learn {len(data.ranked)} tokens")

    few = recipe.exits[:: max(1, len(recipe.exits) // QUICK_EXITS)]

    def measured() -> str:
        some = measure(decoder, data.held_out[:QUICK], data.prefix, few, recipe.batch_rows)
        return some.line(len(decoder.layers))

    course = Course(decoder, data.trained, data.prefix, data.ranked, settings)
    train(course, state, work / CHECKPOINT, say, measured)
    return state


def _vocabularies(decoder: Decoder, data: Data, recipe: Recipe) -> dict[int, int]:
    some = data.trained[:CHOOSING]
    return choose_vocabularies(decoder, some, data.prefix, data.ranked, recipe.exits, recipe.batch_rows)


def _adapter_place(directory: Path) -> Path:
    return directory / ADAPTER


def _with_exits(recipe: Recipe, num_layers: int) -> Recipe:
    exits = recipe.exits or default_exits(num_layers)
    wrong = [layer for layer in exits if not 1 <= layer < num_layers]
    if wrong or list(exits) != sorted(set(exits)):
        raise InvalidRequestError(
            f"exits {list(exits)} are impossible", hint=f"rising numbers of layers in 1..{num_layers - 1}"
        )
    return replace(recipe, exits=exits)


def _read(checkpoint: Checkpoint, data_file: Path, recipe: Recipe, say: Say) -> Data:
    tokenizer = read_tokenizer(checkpoint)
    template = read_template(checkpoint, tokenizer)
    trained_pairs, kept_pairs = split_pairs(read_pairs(data_file), recipe.held_out, recipe.seed)
    trained = encode_pairs(trained_pairs, tokenizer, template, recipe.max_tokens)
    kept = encode_pairs(kept_pairs, tokenizer, template, recipe.max_tokens)
    num_pairs = len(trained_pairs) + len(kept_pairs)
    num_long = num_pairs - len(trained) - len(kept)
    if num_long:
        say(f"{num_long} of {num_pairs} pairs are left out: longer than {recipe.max_tokens} tokens with their template")
    ranked = answer_vocabulary(trained, recipe.coverage, recipe.most_ids)
    return Data(trained, kept, shared_prefix([*trained, *kept]), ranked, kept_pairs)


def _figures(state: TrainingState, decoder: Decoder, data: Data, recipe: Recipe, data_file: Path) -> Figures:
    measured = measure(decoder, data.held_out[:MEASURED], data.prefix, recipe.exits, recipe.batch_rows)
    shares = {name: getattr(measured, name) for name in ("agreement", "accuracy", "exact")}
    return {
        "steps": state.step,
        "minutes": round(state.clock.seconds / 60, 1),
        "data": {"file": data_file.name, "sha256": file_hash(data_file)},
        "held_out": {name: {str(layer): round(v, 4) for layer, v in some.items()} for name, some in shares.items()},
    }
