"""An executor run over one recorded sequence, and its logits compared with the recorded ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from offramp.core import PAGE_SIZE
from offramp.model.executor import Hidden, LayerExecutor
from offramp.testing.batches import chain, pack_rows

if TYPE_CHECKING:
    from .conftest import Recording


def last_states(executor: LayerExecutor, tokens: list[int]) -> Hidden:
    """Final hidden states after every token of one sequence; each call starts over on the same pages."""
    pages = range(-(-len(tokens) // PAGE_SIZE))
    rows = pack_rows(chain(tokens), [pages])
    return executor.run_layers(executor.embed(rows), rows, 0, executor.config.num_layers)


def prompt_of(recording: Recording, index: int) -> Recording:
    """What is recorded of one prompt, by the rest of its key."""
    return {key.partition(".")[2]: value for key, value in recording.items() if key.startswith(f"prompt{index}.")}


def worst_logit(executor: LayerExecutor, recorded: Recording) -> float:
    """The largest difference of a logit at the recorded positions, relative to the row's largest."""
    logits = executor.logits(last_states(executor, recorded["tokens"].tolist()).take(recorded["positions"]))
    stride = -(-logits.shape[1] // recorded["strided_logits"].shape[1])
    largest = np.abs(recorded["best_logits"]).max(axis=1, keepdims=True)
    best = np.take_along_axis(logits, recorded["best_ids"], axis=1)
    worst_best = (np.abs(best - recorded["best_logits"]) / largest).max()
    return float(max(worst_best, (np.abs(logits[:, ::stride] - recorded["strided_logits"]) / largest).max()))
