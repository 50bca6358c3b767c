"""Has the layer still changed anything? The cosine between two hidden states.

What: the cosine of a row's hidden states after this layer and the one before; negative ones count as 0.
When it helps: without any training, where hidden states settle before the last layer.
Cost: a few microseconds a row, and steps that also stop one layer before each exit point.
Exactness: a score depends on the row's hidden states alone, bit for bit; what leaves by it is lossy.
Source: CALM's hidden-state saturation (arXiv 2207.07061).
"""

from __future__ import annotations

import numpy as np

from offramp.exits.measures import Scores
from offramp.exits.predictors import States

TINY = np.float32(1e-38)
"""Instead of a length of 0."""


class Similarity:
    """A predictor without weights; of a hidden state that is all zeros the score is 0."""

    @property
    def wants_previous(self) -> bool:
        return True

    def scores(self, hidden: States, previous: States | None) -> Scores:
        assert previous is not None, "the policy wants the hidden states of the layer before"
        with np.errstate(invalid="ignore", over="ignore"):
            now, before = _scaled(hidden), _scaled(previous)
            length = np.sqrt((now * now).sum(axis=1)) * np.sqrt((before * before).sum(axis=1))
            cosine = (now * before).sum(axis=1) / np.maximum(length, TINY)
            score: Scores = np.clip(cosine, np.float32(0.0), np.float32(1.0))
            return score


def _scaled(states: States) -> States:
    """Rows divided by their largest magnitude, so that no square overflows or vanishes."""
    rows = np.ascontiguousarray(states, dtype=np.float32)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled: States = rows / np.maximum(largest, TINY)
    return scaled
