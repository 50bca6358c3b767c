"""Log-probabilities of the model's raw distribution: before bias, penalties, masks and temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.core import TokenLogprobs
from offramp.errors import NumericError


def raw_logprobs(logits: NDArray[np.float32], token_id: int, k: int) -> TokenLogprobs:
    """Log-softmax (f64) of one row [vocab] at the chosen token and at the k best."""
    values = logits.astype(np.float64)
    best = values.max()
    if not np.isfinite(best):
        raise NumericError(
            f"the model's logits reach {best}", hint="the weights may be damaged: check or fetch the model again"
        )
    log_sum = best + np.log(np.exp(values - best).sum())
    chosen = values[token_id]
    ahead = np.count_nonzero(values > chosen) + np.count_nonzero(values[:token_id] == chosen)
    top = [(int(i), float(values[i] - log_sum)) for i in _best_ids(logits, k)]
    return TokenLogprobs(token_id, float(chosen - log_sum), int(ahead) + 1, top)


def _best_ids(logits: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The k largest by falling logit, equal ones by rising id, without sorting the vocabulary."""
    k = min(k, len(logits))
    if k == 0:
        return np.empty(0, dtype=np.intp)
    threshold = np.partition(logits, len(logits) - k)[len(logits) - k]
    ids = np.flatnonzero(logits >= threshold)
    return ids[np.argsort(-logits[ids], kind="stable")][:k]
