"""Log-probabilities of the model's raw distribution: before bias, penalties, masks and temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.core import TokenLogprobs
from offramp.errors import NumericError

BLOCK = 64


def raw_logprobs(logits: NDArray[np.float32], token_id: int, k: int) -> TokenLogprobs:
    """Log-softmax of one row [vocab] at the chosen token and at the k best; f32 exponentials, f64 sum."""
    best = logits.max()
    if not np.isfinite(best):
        hint = "the weights may be damaged: check or fetch the model again"
        raise NumericError(f"the model's logits reach {best}", hint=hint)
    with np.errstate(over="ignore"):  # from the largest to the smallest f32 is -inf, whose exponential is right
        below = logits - best
    log_sum = float(best) + float(np.log(np.exp(below).sum(dtype=np.float64)))
    chosen = logits[token_id]
    ahead = np.count_nonzero(logits > chosen) + np.count_nonzero(logits[:token_id] == chosen)
    top = [(int(i), float(logits[i]) - log_sum) for i in _best_ids(logits, k)]
    return TokenLogprobs(token_id, float(chosen) - log_sum, int(ahead) + 1, top)


def _best_ids(logits: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The k largest by falling logit, equal ones by rising id.

    k blocks have a maximum of at least the k-th largest block maximum: smaller logits need no sorting.
    """
    if k == 0:
        return np.empty(0, dtype=np.intp)
    maxima = np.sort(logits[: len(logits) // BLOCK * BLOCK].reshape(-1, BLOCK).max(axis=1))
    ids = np.flatnonzero(logits >= maxima[-k]) if k <= len(maxima) else np.arange(len(logits))
    return ids[np.argsort(-logits[ids], kind="stable")][:k]
