"""Rows put together from whole and reduced heads hold exactly what was put last."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import Ids
from offramp.engine.logit_rows import LogitRows

VOCAB = 40
EVEN: Ids = np.arange(0, VOCAB, 2, dtype=np.int32)
FEW: Ids = np.array([1, 2, 30], dtype=np.int32)


def expected(logits: np.ndarray, ids: Ids | None) -> np.ndarray:
    if ids is None:
        return logits
    row = np.full(VOCAB, -np.inf, dtype=np.float32)
    row[ids] = logits
    return row


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_heads_leaves_nothing_behind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, truth = LogitRows(VOCAB), {}
    for step in range(60):
        count = int(rng.integers(1, 4 + step // 20))
        rows.reserve(count)
        for row in range(count):
            ids = (None, EVEN, FEW, EVEN.copy())[rng.integers(4)]
            logits = rng.standard_normal(VOCAB if ids is None else len(ids)).astype(np.float32)
            rows.put(row, logits, ids)
            truth[row] = expected(logits, ids)
        got = rows.first(count)
        assert got.shape == (count, VOCAB)
        assert all(np.array_equal(got[row], truth[row]) for row in range(count))


def test_memory_is_kept() -> None:
    rows = LogitRows(VOCAB)
    rows.reserve(3)
    before = rows.first(3)
    rows.reserve(2)
    assert np.shares_memory(before, rows.first(2))
