"""How much faster: ratios of tokens a second, with intervals that know of noise and of the choice of prompts."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ratios import Ratio
from offramp.bench.results.intervals import Values, rate_ratio

Runs = Values
"""Seconds and tokens of each run. [rounds, prompts, 2]"""


def speed_ratio(plain: Runs, other: Runs, groups: Sequence[Sequence[int]]) -> Ratio:
    """How many times the tokens a second of `plain` the other one has: the median of the rounds, and a 95 % interval.

    In each round seconds and tokens are summed over the prompts of all groups. The bootstrap draws prompts within their
    groups, the same for all rounds and both sides, and then rounds.
    """
    assert plain.shape == other.shape
    members = [place for group in groups for place in group]
    assert members, "no prompts"
    named = [number for number, group in enumerate(groups) for _ in group]
    found = rate_ratio(plain[:, members], other[:, members], named)
    assert found is not None, "a round in which nothing was decoded"
    return Ratio.of(found)
