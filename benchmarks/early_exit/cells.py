"""What is compared: so many streams, a batch policy and a fill, each with the best setting that was found for it."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.engine.exit_points import ExitBatching
from offramp.exits.policy import Fill

ONE, SOME, MANY = 1, 4, 16


@dataclass(frozen=True, slots=True)
class Cell:
    """Settings of one are searched and compared among themselves."""

    streams: int
    batching: ExitBatching
    fill: Fill

    @property
    def name(self) -> str:
        what = "1 stream" if self.streams == 1 else f"{self.streams} streams, {self.batching}"
        return f"{what}, {self.fill}"


ONE_DEFERRED, ONE_PROPAGATE = Cell(ONE, "compact", "deferred"), Cell(ONE, "compact", "propagate")
MANY_DEFERRED, MANY_PROPAGATE = Cell(MANY, "compact", "deferred"), Cell(MANY, "compact", "propagate")
MANY_BARRIER, MANY_LITERAL = Cell(MANY, "barrier", "propagate"), Cell(MANY, "literal", "propagate")
SOME_PROPAGATE, SOME_LITERAL = Cell(SOME, "compact", "propagate"), Cell(SOME, "literal", "propagate")

PARTS: dict[str, tuple[Cell, ...]] = {
    "parser": (ONE_DEFERRED, ONE_PROPAGATE),
    "batch": (MANY_DEFERRED, MANY_PROPAGATE, MANY_BARRIER, MANY_LITERAL),
    "literal": (SOME_PROPAGATE, SOME_LITERAL),
}
"""Part -> its cells; those of one part take turns with full depth."""
