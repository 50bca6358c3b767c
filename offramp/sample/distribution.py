"""The distribution that a row's token is drawn from, as probabilities: for verifiers that compare two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.sample import elementary, processors
from offramp.sample.processors import Row
from offramp.sample.race import NoiseKey, scaled, uniforms
from offramp.sample.sampler import RowJob, adjusted

Probabilities = NDArray[np.float64]  # [vocab], sums to 1
SMALLEST = float(np.finfo(np.float64).tiny)
"""Less is no normal number, and is never drawn."""


def distribution(raw: Row, job: RowJob) -> Probabilities:
    """After all processors; all on one token where the job is greedy. Some processed logit must be finite."""
    row, params = adjusted(raw, job), job.params
    if params.greedy:
        certain = np.zeros(len(row))
        certain[int(row.argmax())] = 1.0
        return certain
    row = processors.keep_top_k(row, params.top_k)
    row = processors.keep_top_p(row, params.temperature, params.top_p)
    row = processors.keep_min_p(row, params.temperature, params.min_p)
    weights = elementary.exp(scaled(row, params.temperature))
    probabilities: Probabilities = weights / weights.sum()
    return probabilities


def draw_from(probabilities: Probabilities, key: NoiseKey, purpose: int) -> int:
    """A token by these probabilities, which need not sum to 1; the noise is that of the key and the purpose."""
    ids = np.flatnonzero(probabilities > SMALLEST)
    noise = -elementary.log(-elementary.log(uniforms(key, ids, purpose)))
    return int(ids[np.argmax(elementary.log(probabilities[ids]) + noise)])
