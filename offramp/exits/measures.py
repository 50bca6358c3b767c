"""How sure a head is of its likeliest token.

What: top probability; margin, the top probability minus the second; and entropy, as 1 - H / log n.
When it helps: always needed; which of them tells right from wrong best differs from head to head, so compare them.
Cost: executors compute all three right behind the head's matrix, in some microseconds for 8,192 logits.
Exactness: a score depends on the row's logits alone, bit for bit, whatever the batch, the threads and the kernels; what
leaves by it is lossy.
Source: CALM (arXiv 2207.07061), EE-LLM (arXiv 2312.04916), self-supervised exits (arXiv 2407.21082).

Scores lie in [0, 1] and are higher the surer the head is; that of a row without a finite largest logit is NaN, which
passes no threshold.
Shapes: rows, n = tokens that the head knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from offramp.model.executor import ENTROPY, MARGIN, TOP_PROBABILITY, LogitSummary
from offramp.params import refused

Scores = NDArray[np.float32]  # [rows]
Measure = Callable[[LogitSummary], Scores]


def top_probability(summary: LogitSummary) -> Scores:
    return summary.scores[:, TOP_PROBABILITY]


def margin(summary: LogitSummary) -> Scores:
    """0 where two tokens are equally likely."""
    return summary.scores[:, MARGIN]


def entropy(summary: LogitSummary) -> Scores:
    """1 for a head that has no doubt, 0 for one that holds all its tokens equally likely."""
    return summary.scores[:, ENTROPY]


MEASURES: Mapping[str, Measure] = {"entropy": entropy, "margin": margin, "top_probability": top_probability}


def measure_of(name: str) -> Measure:
    """The measure of that name; an unknown one is refused with the known ones."""
    measure = MEASURES.get(name)
    if measure is None:
        raise refused("measure", name, f"one of {', '.join(MEASURES)}")
    return measure
