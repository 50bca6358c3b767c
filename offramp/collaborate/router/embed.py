"""What a model makes of a prompt, as one vector: the state of its last token, and the mean state of all, at some depth.

It costs the model's first layers over the prompt, once more besides the prefill of whoever answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.cache.sequence import pages_for
from offramp.core import Ids, Rows
from offramp.errors import InvalidRequestError
from offramp.model.config import ModelConfig
from offramp.model.executor import LayerExecutor
from offramp.params import check_int

MOST_TOKENS = 512
"""Of a longer prompt only so many tokens count, the last ones."""
CHUNK = 128
"""Rows of one executor call."""


def num_features(hidden_size: int) -> int:
    """How long the vector is."""
    return 2 * hidden_size


def pages_needed(config: ModelConfig, num_tokens: int) -> int:
    """K/V pages that a prompt takes meanwhile."""
    return pages_for(min(num_tokens, most_tokens(config)))


def embed(executor: LayerExecutor, token_ids: Ids, depths: Sequence[int], pages: Ids) -> NDArray[np.float32]:
    """[depths, features] of one prompt, on pages that nobody else uses; their K/V are overwritten.

    Depths rise. Raises InvalidRequestError for a depth that the model lacks, and for a prompt without tokens.
    """
    check_depths(depths, executor.config.num_layers)
    tokens = np.asarray(token_ids, dtype=np.int32)[-most_tokens(executor.config) :]
    if len(tokens) == 0:
        raise InvalidRequestError("the prompt is empty: there is nothing to look at", hint="give some text")
    assert len(pages) >= pages_for(len(tokens))
    hidden_size = executor.config.hidden_size
    sums = np.zeros((len(depths), hidden_size))
    last = np.zeros((len(depths), hidden_size), np.float32)
    for start in range(0, len(tokens), CHUNK):
        rows = Rows.chain(tokens, start, min(start + CHUNK, len(tokens)), pages)
        h, done = executor.embed(rows), 0
        for place, depth in enumerate(depths):
            h, done = executor.run_layers(h, rows, done, depth), depth
            values = h.numpy()
            sums[place] += values.sum(axis=0, dtype=np.float64)
            last[place] = values[-1]
    return np.hstack([last, (sums / len(tokens)).astype(np.float32)])


def check_depths(depths: Sequence[int], num_layers: int) -> None:
    """Refuse depths that are not there, or don't rise."""
    before = 0
    for depth in depths:
        check_int("depth", depth, before + 1, num_layers)
        before = depth


def most_tokens(config: ModelConfig) -> int:
    """Of a prompt that are looked at, the last ones."""
    return min(MOST_TOKENS, config.max_context)
