"""Exit heads with random weights."""

from __future__ import annotations

import numpy as np

from offramp.core import Ids
from offramp.model.config import ModelConfig
from offramp.model.heads import HeadWeights
from offramp.model.tensors import Matrix, Vector
from offramp.testing.toy import ToyFormat, convert


def random_head(
    config: ModelConfig,
    *,
    seed: int,
    rank: int | None = None,
    weights: ToyFormat = "f32",
    vocab_ids: Ids | None = None,
    own_matrix: bool = False,
) -> HeadWeights:
    """A norm of its own; an adapter if it has a rank, which moves the hidden state about as far as it reaches."""
    rng = np.random.default_rng(seed)
    hidden = config.hidden_size

    def matrix(num_out: int, num_in: int) -> Matrix:
        values = rng.standard_normal((num_out, num_in)) * (2.0 / np.sqrt(num_in))
        return convert(values.astype(np.float32), weights)

    def norm() -> Vector:
        return rng.uniform(0.5, 1.5, hidden).astype(np.float32)

    num_tokens = config.vocab_size if vocab_ids is None else len(vocab_ids)
    return HeadWeights(
        norm=norm(),
        input_norm=None if rank is None else norm(),
        down=None if rank is None else matrix(rank, hidden),
        up=None if rank is None else matrix(hidden, rank),
        vocab_ids=vocab_ids,
        matrix=matrix(num_tokens, hidden) if own_matrix else None,
    )
