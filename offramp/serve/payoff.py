"""Whether drafts pay: when they slow the engine down, the log says so."""

from __future__ import annotations

import logging

from offramp.engine.statistics import Statistics

WINDOW_SECONDS = 10.0
"""Of steps, between two looks."""

TOLERANCE = 0.05
"""Part of the steps' time that drafts may cost: trying them costs a little where they are off."""

log = logging.getLogger("offramp.draft")


class PayoffWatch:
    """Compares what drafted steps took with what plain ones would have; warns once, and again after a recovery."""

    def __init__(self) -> None:
        self._steps = self._drafted = self._plain = 0.0  # seconds at the last look
        self._told = False

    def look(self, now: Statistics) -> None:
        """After a step; cheap."""
        steps = now.step_seconds - self._steps
        if steps < WINDOW_SECONDS:
            return
        drafted, plain = now.drafted_seconds - self._drafted, now.drafted_plain_seconds - self._plain
        self._steps, self._drafted, self._plain = now.step_seconds, now.drafted_seconds, now.drafted_plain_seconds
        slower = drafted - plain > TOLERANCE * steps
        if slower and not self._told:
            log.warning(
                "drafts do not pay: with them %.1f s of steps took what plain decoding would do in %.1f s; "
                "start with --draft off, or with --draft-length goodput, which drafts only where it pays",
                drafted,
                plain,
            )
        self._told = slower
