"""What the cost model says that steps take, kept for some steps: the same is asked for again and again."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.core import CostModel, DraftAsk, StepLoad

CONTEXT_STEP = 128
"""Predictions are kept for contexts so far apart."""
REFRESH = 64
"""Steps after which predictions are asked for anew: the cost model learns."""


class Predictions:
    """Of the steps of one engine, whose model has so many layers."""

    def __init__(self, costs: CostModel, num_layers: int) -> None:
        self.num_layers = num_layers
        self._costs = costs
        self._kept: dict[tuple[int, int, int, int], float] = {}
        self._num_steps = 0

    def begin_step(self) -> bool:
        """A step begins; True where predictions are asked for anew from now on."""
        self._num_steps += 1
        if self._num_steps % REFRESH:
            return False
        self._kept.clear()
        return True

    def seconds(self, num_rows: int, num_layers: int, context: int, num_head_rows: int) -> float:
        """One call; see `CostModel`."""
        key = num_rows, num_layers, context // CONTEXT_STEP, num_head_rows
        seconds = self._kept.get(key)
        if seconds is None:
            length = key[2] * CONTEXT_STEP + CONTEXT_STEP // 2
            seconds = self._costs.seconds(num_rows, num_layers, length, num_head_rows=num_head_rows)
            self._kept[key] = seconds
        return seconds

    def step(self, load: StepLoad, more: int) -> float:
        """A whole step with so many further rows, each of which says something."""
        num_rows, num_head_rows = load.num_rows + more, load.num_head_rows + more
        return self.seconds(num_rows, self.num_layers, load.context, num_head_rows) + load.overhead


def load_of(asks: Sequence[DraftAsk], num_alike: int | None = None) -> StepLoad:
    """Of the step that asks; where nobody told, one row for each ask, or for so many like them."""
    told = asks[0].load
    if told is not None:
        return told
    count = len(asks) if num_alike is None else num_alike
    return StepLoad(count, count, sum(len(ask.token_ids) for ask in asks) // len(asks), 0.0)
