"""One function per step between the model's logits and the draw, in the order in which they apply.

The first group changes a working copy in place and touches only the listed ids; the filters return a row with
-inf where a token is out. -inf means "can't be drawn" throughout. Rows are f32 [vocab].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.sample import elementary
from offramp.sample.race import scaled

Row = NDArray[np.float32]  # [vocab]
TokenIds = Sequence[int] | NDArray[np.integer]

LARGEST = float(np.finfo(np.float32).max)
WEIGHT_ONE = 2.0**44
"""Weight of the likeliest token: integers, so that sums are exact in any order; 2**19 of them fit 63 bits."""


def add_bias(row: Row, bias: Mapping[int, float]) -> None:
    """Add a constant to some logits."""
    ids = np.fromiter(bias.keys(), dtype=np.intp, count=len(bias))
    row[ids] += np.fromiter(bias.values(), dtype=np.float32, count=len(bias))


def penalize_repetition(row: Row, seen: TokenIds, penalty: float) -> None:
    """Divide positive logits of seen tokens by the penalty, multiply the others; once, however often they were seen."""
    ids = np.asarray(seen, dtype=np.intp)
    old = row[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        new = np.where(old > 0, old / penalty, old * penalty)
    row[ids] = np.where(old == -np.inf, old, np.clip(new, -LARGEST, LARGEST))


def penalize_frequency(row: Row, output: TokenIds, presence: float, frequency: float) -> None:
    """Subtract `presence` from the logit of each token in the output, and `frequency` for each time it is there."""
    ids, counts = np.unique(np.asarray(output, dtype=np.intp), return_counts=True)
    row[ids] -= presence + frequency * counts


def forbid(row: Row, ids: Iterable[int]) -> None:
    """Mask some ids; those outside the vocabulary can't occur anyway."""
    row[[i for i in ids if i < len(row)]] = -np.inf


def restrict(row: Row, allowed: NDArray[np.bool_]) -> None:
    """Mask every id that `allowed` [vocab] does not name."""
    assert allowed.shape == row.shape
    np.copyto(row, np.float32(-np.inf), where=~allowed)


def keep_top_k(row: Row, k: int) -> Row:
    """The k largest logits; of equal ones at the end the lowest ids. 0, -1 and k >= vocab are off."""
    return row if k <= 0 or k >= len(row) else _keep(row, _descending(row)[:k])


def keep_top_p(row: Row, temperature: float, top_p: float) -> Row:
    """The smallest set of likeliest tokens whose probability reaches `top_p`, at least one; ties go to the lowest ids.

    Probabilities count in units of 2**-44 of the largest one, so the cut is exact to 1e-8 of the total.
    """
    if top_p >= 1.0:
        return row
    order = _descending(row)
    cumulative = np.cumsum(weights(row, temperature)[order])
    total = int(cumulative[-1])
    target = min(max(int(np.ceil(top_p * float(total))), 1), total)
    return _keep(row, order[: int(np.searchsorted(cumulative, np.uint64(target))) + 1])


def keep_min_p(row: Row, temperature: float, min_p: float) -> Row:
    """The tokens at least `min_p` times as likely as the likeliest."""
    if min_p == 0.0:
        return row
    return np.where(elementary.exp(scaled(row, temperature)) >= min_p, row, np.float32(-np.inf))


def weights(row: Row, temperature: float) -> NDArray[np.uint64]:
    """Unnormalized softmax(row / temperature) as integers; the largest is 2**44."""
    return np.rint(elementary.exp(scaled(row, temperature)) * WEIGHT_ONE).astype(np.uint64)


def _descending(row: Row) -> NDArray[np.intp]:
    """Ids by falling logit, equal ones by rising id."""
    return np.argsort(-row, kind="stable")


def _keep(row: Row, ids: NDArray[np.intp]) -> Row:
    kept = np.full_like(row, -np.inf)
    kept[ids] = row[ids]
    return kept
