"""How much the big model is needed, by what the little one wrote.

What: 1 less a confidence in [0, 1]. `mean`: the geometric mean of the chances of the answer's tokens. `quantile`: the
chance that a tenth of them stay below. `agreement`: how alike the answer and some short samples are, by their words.
`trained`: what a `Scorer` learned to make of the first two and the length; `trained-agreement`: of the samples too.
When it helps: where the little model knows what it does not know; to be measured on prompts like those to come.
Cost: nothing where log-probabilities suffice, which come with the tokens; agreement writes the samples besides.
Exactness: a cascade is lossy; a certified threshold bounds the loss.
Source: Gupta et al., Language Model Cascades (arXiv 2404.10136), for mean and quantile; agreement as in
self-consistency (arXiv 2203.11171).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from offramp.collaborate.cascade.scorer import Scorer
from offramp.collaborate.threshold import BELOW_ONE, bounded
from offramp.quality.words import words

QUANTILE = 0.1
NUM_SAMPLES = 4
SAMPLE_TOKENS = 48
SAMPLE_TEMPERATURE = 0.7
LEAST_LOGPROB = -30.0
"""Features are bounded by it: a token that can't be says no more than one that can hardly be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreKind:
    """What a score looks at."""

    num_samples: int = 0  # further answers of the little model
    trained: bool = False  # it takes a `Scorer`, which a calibration teaches

    @property
    def num_features(self) -> int:
        """Of a trained one."""
        return 3 + (self.num_samples > 0)


SCORES: Mapping[str, ScoreKind] = {
    "mean": ScoreKind(),
    "quantile": ScoreKind(),
    "agreement": ScoreKind(num_samples=NUM_SAMPLES),
    "trained": ScoreKind(trained=True),
    "trained-agreement": ScoreKind(trained=True, num_samples=NUM_SAMPLES),
}
"""By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the little model wrote: an answer, the log-probabilities of its tokens, and texts of samples."""

    text: str
    logprobs: Sequence[float]
    samples: Sequence[str] = ()


def need(kind: str, written: Written, scorer: Scorer | None = None) -> float:
    """The score, in [0, 1); `scorer` is that of a trained kind."""
    if SCORES[kind].trained:
        assert scorer is not None, "a trained score without what was taught"
        return scorer.score(features(kind, written)) if written.logprobs else BELOW_ONE
    if SCORES[kind].num_samples:
        return _bounded(1 - agreement([written.text, *written.samples]))
    if not written.logprobs:
        return BELOW_ONE
    if kind == "quantile":
        return _bounded(1 - float(np.exp(np.quantile(written.logprobs, QUANTILE))))
    return _bounded(1 - float(np.exp(np.mean(written.logprobs))))


def features(kind: str, written: Written) -> list[float]:
    """What a trained score reads: mean and low log-probability, length, and where there are samples their agreement."""
    known = [LEAST_LOGPROB if math.isnan(each) else max(each, LEAST_LOGPROB) for each in written.logprobs]
    logprobs = np.array(known or [LEAST_LOGPROB])
    found = [float(logprobs.mean()), float(np.quantile(logprobs, QUANTILE)), math.log1p(len(written.logprobs))]
    if SCORES[kind].num_samples:
        found.append(agreement([written.text, *written.samples]))
    return found


def agreement(texts: Sequence[str]) -> float:
    """The mean overlap of two of these texts, in [0, 1]; texts are cut to the words of the shortest."""
    said = [words(text) for text in texts]
    shortest = min(map(len, said))
    if shortest == 0:  # samples that say nothing at once agree with an answer that does the same
        return float(not any(said))
    counts = [Counter(each[:shortest]) for each in said]
    overlaps = [(one & other).total() / shortest for one, other in combinations(counts, 2)]
    return float(np.mean(overlaps))


def _bounded(value: float) -> float:
    return float(bounded(np.array([value]))[0])
