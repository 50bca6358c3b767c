"""How much faster one method is than another, from turns that they took side by side: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from offramp.core.profile import Gain

RESAMPLES = 10_000
LEAST_PAIRS = 5
"""Of fewer no bootstrap is wide enough."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What a turn took, and brought."""

    seconds: float
    tokens: int

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


Pair = tuple[Timed, Timed]
"""Turns of two methods over the same prompts, one right behind the other."""


def ratio(pairs: Sequence[Pair]) -> float:
    """Tokens a second of the second of each pair over those of the first, all together."""
    first, second = (
        Timed(sum(each.seconds for each in side), sum(each.tokens for each in side))
        for side in zip(*pairs, strict=True)
    )
    return second.rate / first.rate


def gain(pairs: Sequence[Pair], among: int = 1) -> Gain:
    """The ratio with its 95 % bootstrap interval over pairs: another draw of prompts, and another noise.

    Of several methods the intervals of all hold together (Bonferroni). A bootstrap of few pairs is too narrow, so its
    quantiles are those that make it as wide as Student's interval would be (Hesterberg, 2015).
    """
    assert len(pairs) >= LEAST_PAIRS, "no interval from a few pairs"
    values = np.array([(one.seconds, one.tokens, other.seconds, other.tokens) for one, other in pairs])  # [pairs, 4]
    sums = _resamples(len(pairs)) @ values  # [resamples, 4]
    ratios = sums[:, 3] / sums[:, 2] / (sums[:, 1] / sums[:, 0])
    tail = _tail(len(pairs), 0.025 / among)
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Gain(ratio=ratio(pairs), low=float(low), high=float(high), turns=len(pairs))


@cache
def _resamples(count: int) -> NDArray[np.float64]:
    """How often each of so many pairs is drawn: [resamples, pairs]."""
    shares = np.full(count, 1 / count)
    return np.random.default_rng(0).multinomial(count, shares, size=RESAMPLES).astype(np.float64)


def _tail(count: int, tail: float) -> float:
    """The part of the bootstrap distribution that lies beyond Student's interval of so many values."""
    return NormalDist().cdf(-student(count - 1, tail) * math.sqrt(count / (count - 1)))


def student(freedom: int, tail: float) -> float:
    """Above which a part of Student's distribution lies, by an expansion around the normal one's quantile.

    Good to 1 % from 4 degrees of freedom on, for the tails that are needed here.
    """
    z: float = NormalDist().inv_cdf(1 - tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
