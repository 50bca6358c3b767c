"""How many of the answers' most frequent tokens the head of each exit should know.

A small head is read faster; a large one lets more tokens leave. Which is worth more is counted in weights: those that
every head run reads, against those that a token which leaves need not read. V = tokens of the model's vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.train.decoder import Decoder
from offramp.train.layerskip.batches import Example, batches_by_length

SMALLEST = 256
ERRORS = 0.001
"""Share of all tokens that may leave wrong when it is counted how many leave."""

Said = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Top probability of a head at each token, and whether full depth says the same."""


def choose_vocabularies(
    decoder: Decoder,
    examples: Sequence[Example],
    prefix: Sequence[int],
    ranked: Ids,
    exits: Sequence[int],
    batch_rows: int,
) -> dict[int, int]:
    """By exit, how many of the `ranked` ids, most frequent first, make the best head; measured on `examples`."""
    sizes = candidate_sizes(len(ranked))
    said = _said(decoder, examples, prefix, ranked, exits, sizes, batch_rows)
    per_layer: int = sum(projection.weight.numel() for projection in decoder.layers[0].projections.values())
    hidden, num_layers = decoder.config.hidden_size, decoder.config.num_layers

    def worth(layer: int, size: int) -> float:
        spared = (num_layers - layer) * per_layer + decoder.config.vocab_size * hidden
        return leaving_share(*said[layer, size]) * float(spared) - size * hidden

    return {layer: max(sizes, key=lambda size: worth(layer, size)) for layer in exits}


def candidate_sizes(most: int) -> list[int]:
    """Doubling from `SMALLEST`, and all of them."""
    sizes = [SMALLEST << i for i in range(32) if SMALLEST << i < most]
    return [*sizes, most]


def leaving_share(probability: NDArray[np.float32], right: NDArray[np.bool_]) -> float:
    """The most tokens that a threshold lets leave while those that leave wrong stay within `ERRORS` of all."""
    order = np.argsort(-probability, kind="stable")
    allowed = np.flatnonzero(np.cumsum(~right[order]) <= ERRORS * len(order))
    return (int(allowed[-1]) + 1) / len(order) if len(allowed) else 0.0


def _said(
    decoder: Decoder,
    examples: Sequence[Example],
    prefix: Sequence[int],
    ranked: Ids,
    exits: Sequence[int],
    sizes: Sequence[int],
    batch_rows: int,
) -> dict[tuple[int, int], Said]:
    num_layers = decoder.config.num_layers
    head = decoder.head_rows()
    columns = torch.from_numpy(ranked).long()
    found: dict[tuple[int, int], list[Said]] = {(layer, size): [] for layer in exits for size in sizes}
    with torch.no_grad():
        for batch in batches_by_length(examples, prefix, batch_rows):
            states = decoder.states_at(batch, (*exits, num_layers))
            full = (states[num_layers] @ head.t()).argmax(dim=1)
            for layer in exits:
                logits = (states[layer] @ head[columns].t()).float()  # [rows, ranked]
                for size in sizes:
                    top, best = logits[:, :size].softmax(dim=1).max(dim=1)
                    found[layer, size].append((top.numpy(), (columns[best] == full).numpy()))
    return {
        key: (np.concatenate([top for top, _ in parts]), np.concatenate([right for _, right in parts]))
        for key, parts in found.items()
    }
