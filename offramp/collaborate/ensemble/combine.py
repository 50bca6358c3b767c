"""One distribution of several, over the same vocabulary.

What: `average` is the weighted mean of probabilities, `product` their weighted geometric mean, `certainty` the
distribution of the member that is surest of its likeliest token.
When it helps: members that err on different tokens; `product` wants all to agree, `average` lets any propose.
Cost: every member's whole step for each token.
Exactness: another distribution than any member's; what is drawn from it follows sampling settings as ever.
Source: textbook (linear and logarithmic opinion pools).

members; vocab = tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offramp.errors import InvalidRequestError
from offramp.params import check_number, refused
from offramp.sample.processors import Row

Mode = Literal["average", "product", "certainty"]
MODES: Mapping[str, Mode] = {"average": "average", "product": "product", "certainty": "certainty"}

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""Parts of 1 stay above 0: nothing times what can't be drawn is no number."""

LogProbs = NDArray[np.float64]  # [members, vocab]


def check_weights(weights: Sequence[float] | None, count: int, mode: str) -> NDArray[np.float64]:
    """As parts of 1; equal ones for None. Refuses what is impossible, and weights beside `certainty`."""
    if weights is None:
        return np.full(count, 1 / count)
    if mode == "certainty":
        hint = "leave them out: the surest member decides alone"
        raise InvalidRequestError(f"weights={list(weights)!r} beside mode certainty", hint=hint, param="weights")
    if len(weights) != count:
        raise refused("weights", list(weights), f"{count} numbers, one for each member")
    for weight in weights:
        check_number("weights", weight, LEAST_WEIGHT, MOST_WEIGHT)
    return np.array(weights, dtype=np.float64) / math.fsum(weights)


def log_softmax(row: Row) -> NDArray[np.float64]:
    """[vocab]"""
    values = row.astype(np.float64) - float(row.max())
    logs: NDArray[np.float64] = values - math.log(np.exp(values).sum())
    return logs


def combine(rows: Sequence[Row], mode: Mode, weights: NDArray[np.float64]) -> Row:
    """Log-probabilities of the ensemble, from logits [vocab] of each member. -inf where nothing can be drawn."""
    logs: LogProbs = np.stack([log_softmax(row) for row in rows])
    if mode == "certainty":
        surest: Row = logs[int(logs.max(axis=1).argmax())].astype(np.float32)
        return surest
    if mode == "product":
        product: Row = (weights @ logs).astype(np.float32)
        return log_softmax(product).astype(np.float32) if product.max() > -np.inf else product
    with np.errstate(divide="ignore"):
        mixed: Row = np.log(weights @ np.exp(logs)).astype(np.float32)
    return mixed
