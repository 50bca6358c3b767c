"""What every step took and brought, told to statistics and cost model."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core import CostModel
from offramp.engine.pack import Batch
from offramp.engine.statistics import Statistics

OVERHEAD_WEIGHT = 1 / 32
"""Of the latest step in the mean of what steps take besides the executor's time."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one step: drafting, in the executor after that, and altogether."""

    draft: float
    run: float
    step: float
    draft_run: float = 0.0  # of drafting, in the target's executor

    @property
    def besides(self) -> float:
        """Seconds of the step outside drafting and the executor."""
        return self.step - self.run - self.draft


@dataclass(frozen=True, slots=True)
class _Alike:
    """A step whose rows all went all the way and had their say."""

    num_rows: int
    context: int
    seconds: float  # without drafting and overhead


class Account:
    """Adds up the steps of one engine. `costs` is told what each step took in which no row may leave early."""

    def __init__(self, statistics: Statistics, costs: CostModel | None, num_layers: int) -> None:
        self._statistics = statistics
        self._costs = costs
        self._num_layers = num_layers
        self._overhead = 0.0
        self._latest: _Alike | None = None

    @property
    def overhead(self) -> float:
        """Seconds that a step takes besides the executor's and drafting, decayed mean."""
        return self._overhead

    @property
    def surprise(self) -> float | None:
        """Seconds that the latest step took beyond overhead, drafting and what its rows were predicted to take.

        None where that says nothing of drafts: a prompt ran, a row could leave early or had begun while drafting.
        """
        latest = self._latest
        if latest is None or self._costs is None:
            return None
        return latest.seconds - self._costs.seconds(latest.num_rows, self._num_layers, latest.context)

    def add(self, batch: Batch, num_tokens: int, spent: Spent) -> None:
        """A step, in which `num_tokens` were committed."""
        statistics = self._statistics
        run_seconds = spent.run + spent.draft_run
        self._latest = None
        statistics.draft_seconds += spent.draft
        statistics.run_seconds += run_seconds
        statistics.step_seconds += spent.step
        statistics.num_steps += 1
        statistics.num_rows += len(batch.rows)
        if self._costs is not None and not batch.candidates:
            num_rows, num_head_rows = len(batch.rows), len(batch.logit_rows)
            context = int(batch.rows.positions.mean())
            if not batch.started:  # else other layers had other rows
                if num_rows == num_head_rows:
                    self._latest = _Alike(num_rows, context, spent.run + spent.besides - self._overhead)
                self._costs.observe(num_rows, self._num_layers, context, spent.run, num_head_rows=num_head_rows)
            self._compare(self._costs, batch, context, num_tokens, spent)
        weight = max(OVERHEAD_WEIGHT, 1 / statistics.num_steps)
        self._overhead += weight * (spent.besides - self._overhead)

    def _compare(self, costs: CostModel, batch: Batch, context: int, num_tokens: int, spent: Spent) -> None:
        """Set a step that drafted, without prompts, against the plain steps that bring as many tokens."""
        if any(place.sequence.request.big_little is not None for place in batch.places):
            return  # the tokens are not those of plain steps
        num_places, num_drafted = len(batch.places), sum(len(place.tree) for place in batch.places)
        if (num_drafted or batch.started) and len(batch.rows) == num_places + num_drafted:
            plain = costs.seconds(num_places, self._num_layers, context) + spent.besides
            self._statistics.drafted_seconds += spent.step
            self._statistics.drafted_plain_seconds += plain * num_tokens / num_places
