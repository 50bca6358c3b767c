"""How much the big model is needed, by what the little one wrote.

What: 1 less a confidence in [0, 1]. `mean`: the geometric mean of the chances of the answer's tokens. `quantile`: the
chance that a tenth of them stay below. `agreement`: how alike the answer and some short samples are, by their words.
When it helps: where the little model knows what it does not know; to be measured on prompts like those to come.
Cost: nothing for the first two, whose log-probabilities come with the tokens; `agreement` writes the samples besides.
Exactness: a cascade is lossy; a certified threshold bounds the loss.
Source: Gupta et al., Language Model Cascades (arXiv 2404.10136), for mean and quantile; agreement as in
self-consistency (arXiv 2203.11171).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from offramp.collaborate.threshold import BELOW_ONE, bounded

QUANTILE = 0.1
NUM_SAMPLES = 4
SAMPLE_TOKENS = 48
SAMPLE_TEMPERATURE = 0.7
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreKind:
    """What a score looks at."""

    num_samples: int = 0  # further answers of the little model


SCORES: Mapping[str, ScoreKind] = {
    "mean": ScoreKind(),
    "quantile": ScoreKind(),
    "agreement": ScoreKind(num_samples=NUM_SAMPLES),
}
"""By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the little model wrote: an answer, the log-probabilities of its tokens, and texts of samples."""

    text: str
    logprobs: Sequence[float]
    samples: Sequence[str] = ()


def need(kind: str, written: Written) -> float:
    """The score, in [0, 1)."""
    if SCORES[kind].num_samples:
        return _bounded(1 - agreement([written.text, *written.samples]))
    if not written.logprobs:
        return BELOW_ONE
    if kind == "quantile":
        return _bounded(1 - float(np.exp(np.quantile(written.logprobs, QUANTILE))))
    return _bounded(1 - float(np.exp(np.mean(written.logprobs))))


def agreement(texts: Sequence[str]) -> float:
    """The mean overlap of two of these texts, in [0, 1]; texts are cut to the words of the shortest."""
    words = [WORD.findall(text.casefold()) for text in texts]
    shortest = min(map(len, words))
    if shortest == 0:  # samples that say nothing at once agree with an answer that does the same
        return float(all(not each for each in words))
    counts = [Counter(each[:shortest]) for each in words]
    overlaps = [(one & other).total() / shortest for one, other in combinations(counts, 2)]
    return float(np.mean(overlaps))


def _bounded(value: float) -> float:
    return float(bounded(np.array([value]))[0])
