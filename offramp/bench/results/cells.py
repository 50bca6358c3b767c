"""Figures of a method on a task at so many streams, each with its interval. What tables and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALL = "all"
"""In the place of a task: all of a workload together."""

RAN_AS_FULL = "ran as mode full"
"""What a note gives the reason for."""

LEAST_MEASURED = 5
"""Measurements below which no bootstrap is as wide as it says: the truth lies outside all of four in one of eight."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def is_point(self) -> bool:
        """It knows of no noise: of a single measurement, or of equal ones."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """None: was not measured, or has no meaning here. Ratios are to plain decoding; above 1, the method is faster."""

    workload: str
    task: str
    method: str
    exactness: str
    streams: int
    num_items: int
    num_failed: int
    rounds: int
    output_tokens: int  # of one round
    decode_rate: Interval  # tokens a second, all streams together, the first token of each aside
    total_rate: Interval  # tokens a second, from the first request to the last token
    decode_ratio: Interval | None
    total_ratio: Interval | None
    first_ms: Interval  # to the first token, median over requests
    token_ms: Mapping[str, float]  # a token: "median", "p90", "p99" over all gaps
    peak_bytes: int | None
    joules_per_token: Interval | None
    equal_share: float | None  # of items whose tokens are those of plain decoding, all rounds
    acceptance_rate: float | None
    acceptance_length: float | None  # tokens of a drafted step
    accepted_per_pos: tuple[float, ...]  # of the drafts that reached a position
    mean_exit_layer: float | None
    exit_counts: Mapping[int, int]  # layers run -> tokens
    quality: Mapping[str, Interval]  # by metric
    plain_quality: Mapping[str, Interval]
    quality_change: Mapping[str, Interval]  # method less plain, paired by items
    note: str | None = None  # why it ran as mode full, not as it promises

    @property
    def promise(self) -> str:
        """What the method promises, and whether it kept that by losing nothing."""
        return self.exactness if self.note is None else f"{self.exactness} ({RAN_AS_FULL})"

    @property
    def num_measured(self) -> int:
        """What speeds rest on: answers of each round, or of several streams together whole turns."""
        return self.rounds if self.task == ALL and self.streams > 1 else self.rounds * self.num_items

    @property
    def is_sparse(self) -> bool:
        """Its intervals are narrower than 95 %."""
        return self.num_measured < LEAST_MEASURED
