"""Pairwise cases: every pair occurs, in few cases."""

from __future__ import annotations

from itertools import combinations

import pytest

from offramp.testing.matrix import pairwise


@pytest.mark.parametrize("sizes", [(2, 2, 2), (5, 1, 3), (13, 8, 6, 3, 3, 2, 2, 2, 2)])
def test_every_pair_of_values_occurs_in_few_cases(sizes: tuple[int, ...]) -> None:
    axes = {f"axis{index}": range(size) for index, size in enumerate(sizes)}
    cases = pairwise(axes)
    assert all(case.keys() == axes.keys() for case in cases)
    for one, two in combinations(axes, 2):
        assert {(case[one], case[two]) for case in cases} == {(a, b) for a in axes[one] for b in axes[two]}
    largest, second = sorted(sizes)[:-3:-1]
    assert len(cases) <= 1.3 * largest * second + 3
    assert cases == pairwise(axes)
