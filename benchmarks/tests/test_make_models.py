"""The order of rope rows, both ways."""

from __future__ import annotations

import numpy as np

from benchmarks.make_models import unpermute


def test_unpermute_undoes_what_gguf_does() -> None:
    """A file's writer interleaves the halves of each head; the identity would not pass."""
    heads, head_dim, inputs = 3, 8, 5
    original = np.arange(heads * head_dim * inputs, dtype=np.float32).reshape(-1, inputs)
    stored = original.reshape(heads, 2, head_dim // 2, inputs).swapaxes(1, 2).reshape(original.shape)
    assert not np.array_equal(stored, original)
    assert np.array_equal(unpermute(stored, heads), original)
