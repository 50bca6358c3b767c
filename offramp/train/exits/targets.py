"""What a head shall say: the final distribution among the tokens that it knows.

tokens, best as in capture.py; known = tokens of the head's vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.train.exits.answers import Answer
from offramp.train.exits.capture import Captured


@dataclass(frozen=True, slots=True)
class Targets:
    """Columns of the head and their probabilities; a token the head can't name has label -1 and teaches nothing."""

    columns: NDArray[np.int64]  # [tokens, best], 0 where the probability is 0
    probabilities: NDArray[np.float32]  # [tokens, best], of the best that are known; they sum to 1
    labels: NDArray[np.int64]  # [tokens], the column of the likeliest token

    def take(self, tokens: NDArray[np.intp]) -> Targets:
        return Targets(self.columns[tokens], self.probabilities[tokens], self.labels[tokens])


def head_vocabulary(answers: Iterable[Answer], coverage: float, most: int) -> Ids:
    """The most frequent ids of the answers, rising: so many that they make up `coverage` of them, `most` at most."""
    counts = Counter(token for answer in answers for token in answer.answer)
    wanted, covered = coverage * counts.total(), 0
    chosen: list[int] = []
    for token, count in counts.most_common(most):
        if covered >= wanted:
            break
        chosen.append(token)
        covered += count
    return np.array(sorted(chosen), np.int32)


def make_targets(captured: Captured, vocab_ids: Ids) -> Targets:
    """For all captured tokens."""
    places = np.searchsorted(vocab_ids, captured.best_ids)
    places = np.minimum(places, len(vocab_ids) - 1)
    known = vocab_ids[places] == captured.best_ids
    probabilities = np.exp(captured.best_logits - captured.log_sum_exp[:, None]) * known
    sums = probabilities.sum(axis=1, keepdims=True)
    probabilities = np.divide(probabilities, sums, out=np.zeros_like(probabilities), where=sums > 0)
    labels = np.where(known[:, 0], places[:, 0], -1)
    return Targets(np.where(known, places, 0), probabilities.astype(np.float32), labels)
