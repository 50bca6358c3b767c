"""When costs that are in doubt are measured anew: at idle moments, and seldom."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.llm.costs import COSTS, refresh_costs
from offramp.llm.loading import LoadedModel
from offramp.model.model_cache import default_cache

LEAST_SECONDS = 60.0
"""Between two tries; after each measurement twice as long, as the one before did not help for long."""
MOST_SECONDS = 3600.0

log = logging.getLogger("offramp")


class CostRefresh:
    """Looks after the costs of one engine. `clock` counts seconds; whoever may step the engine may call it."""

    def __init__(
        self, costs: MeasuredCosts, loaded: LoadedModel, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._costs = costs
        self._loaded = loaded
        self._clock = clock
        self._begun = clock()
        self._from = -math.inf  # when it may be tried again
        self._pause = LEAST_SECONDS

    @property
    def due(self) -> bool:
        """Costs are in doubt, and it is time to try."""
        return self._costs.doubtful and self._clock() >= self._next

    @property
    def wait(self) -> float | None:
        """Seconds until it may be tried; None where nothing is in doubt."""
        return max(0.0, self._next - self._clock()) if self._costs.doubtful else None

    @property
    def _next(self) -> float:
        """Stale costs are tried at once; those of a busy moment not yet, as the start has just looked at them."""
        return self._from if self._costs.stale else max(self._from, self._begun + LEAST_SECONDS)

    def attempt(self, engine: Engine) -> None:
        """Measure anew where that is due, between steps and with nothing to run; what stops it is only logged."""
        if not self.due or engine.has_work:
            return
        pause = self._pause
        self._from = self._clock() + pause
        try:
            if refresh_costs(self._costs, self._loaded, engine, default_cache() / COSTS):
                self._pause = min(2 * pause, MOST_SECONDS)
        except OfframpError as error:
            log.warning("stale costs can't be measured anew: %s", error)
