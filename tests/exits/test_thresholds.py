"""Frozen thresholds by exit point and output position."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.beta import BetaMixture
from offramp.exits.thresholds import NEVER, Decaying, Fixed, PerExit, checked_threshold, values


def test_fixed_and_per_exit() -> None:
    assert {Fixed(0.7).value(layer, output) for layer in (1, 5) for output in (0, 99)} == {0.7}
    each = PerExit({4: 0.9, 8: 0.5})
    assert [each.value(layer, 3) for layer in (4, 8, 6)] == [0.9, 0.5, NEVER]
    assert not each.adaptive
    assert not each.wants_labels


def test_decay_has_the_published_values() -> None:
    falling = Decaying(Fixed(0.8), 100, 4.0)
    assert falling.value(1, 0) == pytest.approx(0.8)
    assert falling.value(1, 50) == pytest.approx(0.8 * (0.9 + 0.1 * math.exp(-2)))
    assert falling.value(1, 50) == pytest.approx(0.7308268, abs=1e-7)
    assert falling.value(1, 100) == pytest.approx(0.7214652, abs=1e-7)
    assert Decaying(Fixed(0.8), 100, 0.0).value(1, 70) == pytest.approx(0.8)


def test_decay_falls_and_keeps_its_ends() -> None:
    course = [Decaying(PerExit({1: 1.0}), 64).value(1, output) for output in range(65)]
    assert course == sorted(course, reverse=True)
    assert course[0] == 1.0
    assert Decaying(PerExit({}), 64).value(1, 5) == NEVER
    assert Decaying(Fixed(0.0), 64).value(1, 5) == 0.0


def test_values_of_many_rows() -> None:
    falling = Decaying(Fixed(0.8), 10)
    outputs = np.array([0, 7, 3], dtype=np.int32)
    assert values(falling, 2, outputs) == [falling.value(2, output) for output in (0, 7, 3)]
    assert values(falling, 2, outputs[:0]) == []


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 2.5, "0.5", None, True])
def test_impossible_thresholds_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidRequestError, match="threshold="):
        checked_threshold(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="threshold="):
        PerExit({3: wrong})  # type: ignore[dict-item]


def test_only_frozen_thresholds_fall() -> None:
    with pytest.raises(AssertionError):
        Decaying(BetaMixture(), 10)
    with pytest.raises(InvalidRequestError, match="horizon=0"):
        Decaying(Fixed(0.5), 0)
