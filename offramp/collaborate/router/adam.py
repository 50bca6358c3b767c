"""A small optimizer: Adam with decoupled weight decay over a few numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Parameters = dict[str, NDArray[np.float64]]

FIRST, SECOND = 0.9, 0.999
TINY = 1e-8


class Adam:
    """Changes parameters in place, a step a call."""

    def __init__(self, parameters: Parameters, *, rate: float, decay: float, undecayed: frozenset[str]) -> None:
        """`decay` a step, times the rate, for all parameters but `undecayed`."""
        self._parameters = parameters
        self._rate = rate
        self._decay = {name: 0.0 if name in undecayed else decay for name in parameters}
        self._first = {name: np.zeros_like(values) for name, values in parameters.items()}
        self._second = {name: np.zeros_like(values) for name, values in parameters.items()}
        self._steps = 0

    def step(self, slopes: Mapping[str, NDArray[np.float64]], part: float = 1.0) -> None:
        """Down these slopes, at a part of the rate."""
        self._steps += 1
        rate = self._rate * part
        for name, values in self._parameters.items():
            slope, first, second = slopes[name], self._first[name], self._second[name]
            first += (1 - FIRST) * (slope - first)
            second += (1 - SECOND) * (slope**2 - second)
            mean = first / (1 - FIRST**self._steps)
            spread = np.sqrt(second / (1 - SECOND**self._steps))
            values -= rate * (mean / (spread + TINY) + self._decay[name] * values)
