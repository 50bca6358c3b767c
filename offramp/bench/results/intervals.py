"""Figures with their 95 % intervals, by bootstrap. Pure functions of arrays, with a fixed seed.

A draw takes items, within their tasks so that the mixture stays, and rounds, both with replacement; the items drawn are
the same in all rounds and on both sides of a comparison. So an interval knows of noise and of the choice of prompts.
One of a single round and a single item knows nothing, and is a point.
Letters: [rounds, items, 2] are what a round's items took, and what they gave: seconds and tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.bench.results.cells import Interval

Values = NDArray[np.float64]
Tasks = Sequence[Hashable]
"""The task of each item."""

DRAWS = 1000
TAILS = (2.5, 97.5)


def rate(runs: Values, tasks: Tasks) -> Interval | None:
    """What was given a unit taken (tokens a second), the median of the rounds; None if nothing was taken."""
    return _of_rounds(_rates(runs.sum(axis=1)), _rates(_sums(runs, tasks)))


def rate_ratio(plain: Values, other: Values, tasks: Tasks) -> Interval | None:
    """How many times the rate of `plain` the other has, by rounds. Of equal tokens that is seconds over seconds."""
    assert plain.shape == other.shape, "other rounds or items"
    with np.errstate(divide="ignore", invalid="ignore"):
        rounds = _rates(other.sum(axis=1)) / _rates(plain.sum(axis=1))
        drawn = _rates(_sums(other, tasks)) / _rates(_sums(plain, tasks))
    return _of_rounds(rounds, drawn)


def median(values: Values, tasks: Tasks) -> Interval:
    """Of all rounds and items together. [rounds, items]"""
    assert values.size, "no values"
    items, rounds = _places(tasks), _round_picks(len(values))
    drawn = np.median(values[rounds[:, :, None], items[:, None, :]], axis=(1, 2))
    return _interval(float(np.median(values)), drawn)


def mean(values: Values, tasks: Tasks) -> Interval:
    """Of the items. [items]"""
    assert values.size, "no values"
    return _interval(float(values.mean()), _counts(tasks) @ values / len(values))


def mean_change(before: Values, after: Values, tasks: Tasks) -> Interval:
    """The mean of what changed, item by item. [items]"""
    return mean(after - before, tasks)


def _of_rounds(rounds: Values, drawn: Values) -> Interval | None:
    """The median of the rounds' figures [rounds]; `drawn` has them for each draw of items [draws, rounds]."""
    if not np.isfinite(rounds).all():
        return None
    picks = _round_picks(len(rounds))
    return _interval(float(np.median(rounds)), np.median(np.take_along_axis(drawn, picks, axis=1), axis=1))


def _interval(value: float, drawn: Values) -> Interval:
    """Draws that are no number, such as of items without a decoded token, say nothing."""
    finite = drawn[np.isfinite(drawn)]
    low, high = np.percentile(finite, TAILS) if len(finite) else (value, value)
    return Interval(value, float(low), float(high))


def _rates(sums: Values) -> Values:
    """[..., 2] -> [...]"""
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: Values = sums[..., 1] / sums[..., 0]
    return rates


def _sums(runs: Values, tasks: Tasks) -> Values:
    """Over the items of each draw. [draws, rounds, 2]"""
    sums: Values = np.einsum("di,rix->drx", _counts(tasks), runs)
    return sums


def _counts(tasks: Tasks) -> Values:
    """How often each draw has each item. [draws, items]"""
    flat = np.arange(DRAWS)[:, None] * len(tasks) + _places(tasks)
    return np.bincount(flat.ravel(), minlength=DRAWS * len(tasks)).reshape(DRAWS, len(tasks)).astype(np.float64)


def _places(tasks: Tasks) -> NDArray[np.intp]:
    """The items of each draw, as many of each task as there are. [draws, items]

    Where a task has one item only, draws that keep the mixture would all be the same: then they don't.
    """
    if any(count == 1 for count in Counter(tasks).values()):
        tasks = [None] * len(tasks)
    drawn = []
    for number, task in enumerate(dict.fromkeys(tasks)):
        members = np.array([place for place, each in enumerate(tasks) if each == task], dtype=np.intp)
        picks = np.random.default_rng([0, number]).integers(0, len(members), (DRAWS, len(members)))
        drawn.append(members[picks])
    return np.concatenate(drawn, axis=1)


def _round_picks(num_rounds: int) -> NDArray[np.intp]:
    """[draws, rounds]"""
    return np.random.default_rng(1).integers(0, num_rounds, (DRAWS, num_rounds), dtype=np.intp)
