"""How surprising a count of outcomes is."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")


def chi_square(statistic: float, degrees: int) -> float:
    """Its distribution function, by Wilson and Hilferty's approximation."""
    spread = 2 / (9 * degrees)
    return NormalDist(1 - spread, spread**0.5).cdf((statistic / degrees) ** (1 / 3))


def surprise_of(seen: Mapping[T, int], law: Mapping[T, float]) -> float:
    """The probability, under the law, that its statistic is smaller. Nothing impossible may have been seen."""
    count = sum(seen.values())
    possible = {outcome: chance for outcome, chance in law.items() if chance > 0}
    assert not seen.keys() - possible.keys(), "impossible under the law"
    statistic = sum(
        (seen.get(outcome, 0) - count * chance) ** 2 / (count * chance) for outcome, chance in possible.items()
    )
    return chi_square(statistic, len(possible) - 1)
