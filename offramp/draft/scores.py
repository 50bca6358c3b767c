"""How often drafted tokens stood, by what a drafter knew of them when it drafted."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ScoreTable(Generic[K]):
    """Decayed counts a key: keys are coarse (a source, a bucket), so there are few and each learns fast.

    A rate starts at `prior(key)`, which counts as `weight` observations and never fades; what was seen fades so that
    about the last `memory` observations of a key count.
    """

    def __init__(self, prior: Callable[[K], float], *, weight: float = 8.0, memory: float = 400.0) -> None:
        assert weight > 0, weight
        assert memory > 1, memory
        self._prior = prior
        self._weight = weight
        self._keep = 1.0 - 1.0 / memory
        self._counts: dict[K, tuple[float, float]] = {}  # stood, tested
        self._rates: dict[K, float] = {}  # what `rate` returns, as of the last `learn` of that key

    def __len__(self) -> int:
        """Keys that were seen."""
        return len(self._counts)

    def rate(self, key: K) -> float:
        """The share of such tokens that stand where their parent stands, in (0, 1) if the prior is."""
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = self._prior(key)
        return rate

    def learn(self, key: K, stood: bool) -> None:
        """A token drafted under this key was put to the test: its parent stood."""
        old_stood, old_tested = self._counts.get(key, (0.0, 0.0))
        now_stood, now_tested = old_stood * self._keep + stood, old_tested * self._keep + 1.0
        self._counts[key] = now_stood, now_tested
        self._rates[key] = (now_stood + self._weight * self._prior(key)) / (now_tested + self._weight)
