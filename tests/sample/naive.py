"""Filters written the obvious way: sorted Python lists and math.exp."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def kept_ids(row: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The ids with a finite logit that top-k, top-p and min-p leave in play."""
    logits = [float(value) for value in row]
    order = sorted((i for i in range(len(logits)) if logits[i] > -math.inf), key=lambda i: (-logits[i], i))
    if 0 < top_k < len(logits):
        order = order[:top_k]
    best = logits[order[0]]
    odds = [math.exp((logits[i] - best) / temperature) for i in order]
    if top_p < 1.0:
        reached, total, count = 0.0, math.fsum(odds), 0
        while count < len(order) and (count == 0 or reached < top_p * total):
            reached += odds[count]
            count += 1
        order, odds = order[:count], odds[:count]
    return {i for i, odd in zip(order, odds, strict=True) if odd >= min_p}


def adjusted_row(random: np.random.Generator, vocab: int) -> NDArray[np.float32]:
    """A row of logits as they come: smooth or full of ties, some of them masked, at least one finite."""
    row = random.normal(random.choice([0.0, -50.0, 300.0]), random.choice([0.01, 1.0, 3.0, 30.0, 1e4]), vocab)
    row = row if random.random() < 0.6 else np.round(row)
    row[random.random(vocab) < random.choice([0.0, 0.0, 0.5])] = -np.inf
    row[random.random(vocab) < random.choice([0.0, 0.0, 0.3])] = -0.0
    row[random.integers(vocab)] = 0.0
    return row.astype(np.float32)
