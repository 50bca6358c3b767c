"""How much faster: ratios of tokens a second, with intervals that know of noise and of the choice of prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.ratios import Ratio

RESAMPLES = 2000

Runs = NDArray[np.float64]
"""Seconds and tokens of each run. [rounds, prompts, 2]"""


def speed_ratio(plain: Runs, other: Runs, groups: Sequence[Sequence[int]]) -> Ratio:
    """How many times the tokens a second of `plain` the other one has: the median of the rounds, and a 95 % interval.

    In each round seconds and tokens are summed over the prompts of all groups. The bootstrap (percentile, fixed seed)
    draws prompts within their groups, the same for all rounds and both sides, and then rounds.
    """
    assert plain.shape == other.shape
    members = np.concatenate([np.asarray(group, dtype=np.intp) for group in groups])
    assert len(members), "no prompts"
    rounds = _ratios(plain[:, members], other[:, members])  # [rounds]
    drawn = np.concatenate([_draws(group) for group in groups], axis=1)  # [draws, prompts]
    ratios = _ratios(plain[:, drawn], other[:, drawn]).T  # [draws, rounds]
    picks = np.random.default_rng(1).integers(0, len(rounds), ratios.shape)
    medians = np.median(np.take_along_axis(ratios, picks, axis=1), axis=1)
    low, high = np.nanquantile(medians, [0.025, 0.975])
    return Ratio(float(np.median(rounds)), float(low), float(high))


def _draws(group: Sequence[int]) -> NDArray[np.intp]:
    members = np.asarray(group, dtype=np.intp)
    picks = np.random.default_rng([0, *group]).integers(0, len(members), (RESAMPLES, len(members)))
    return members[picks]


def _ratios(plain: Runs, other: Runs) -> NDArray[np.float64]:
    """Of tokens a second, summed over the last axis but one. A draw without any decoded token is no number."""
    ours, theirs = plain.sum(axis=-2), other.sum(axis=-2)  # [..., 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: NDArray[np.float64] = (ours[..., 0] / ours[..., 1]) / (theirs[..., 0] / theirs[..., 1])
    return ratios
