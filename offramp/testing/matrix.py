"""Few cases that cover much: rows of a large matrix in which every pair of values of two axes occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

Pair = tuple[tuple[int, int], tuple[int, int]]
"""Two axes by index, the smaller first, each with the index of a value."""


def pairwise(axes: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Cases with one value an axis; greedy and deterministic, near the fewest: the two longest axes' product."""
    sizes = [len(values) for values in axes.values()]
    waiting: dict[Pair, None] = {
        ((one, a), (two, b)): None
        for one, two in combinations(range(len(sizes)), 2)
        for a, b in product(range(sizes[one]), range(sizes[two]))
    }
    names = list(axes)
    cases: list[dict[str, object]] = []
    while waiting:
        chosen = _case(sizes, waiting, len(cases))
        for pair in combinations(sorted(chosen.items()), 2):
            waiting.pop(pair, None)
        cases.append({names[axis]: axes[names[axis]][value] for axis, value in sorted(chosen.items())})
    return cases


def _case(sizes: Sequence[int], waiting: Mapping[Pair, None], turn: int) -> dict[int, int]:
    """Begin with a pair that still waits, then add to each axis the value that brings most new pairs."""
    chosen = dict(next(iter(waiting)))
    for axis in sorted(range(len(sizes)), key=lambda axis: -sizes[axis]):
        if axis not in chosen:
            news = [_news(chosen, axis, value, waiting) for value in range(sizes[axis])]
            best = [value for value, new in enumerate(news) if new == max(news)]
            chosen[axis] = best[turn % len(best)]
    return chosen


def _news(chosen: Mapping[int, int], axis: int, value: int, waiting: Mapping[Pair, None]) -> int:
    mine = (axis, value)
    return sum(((mine, other) if mine < other else (other, mine)) in waiting for other in chosen.items())
