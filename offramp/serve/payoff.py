"""Whether drafts pay: when they slow the engine down, the log says so."""

from __future__ import annotations

import logging

from offramp.engine.statistics import Statistics

WINDOW_SECONDS = 10.0
"""Of steps, between two looks."""

TOLERANCE = 0.05
"""Part of the steps' time that drafts may cost: trying them costs a little where they are off."""

GOODPUT_WINDOWS = 3
"""Slow ones in a row before goodput is doubted: it finds out by itself, and a neighbour's burst makes any step slow."""

GOODPUT_DRAFTS = 100
"""In a window, at least, for it to say anything of goodput: a few steps beside a busy neighbour do not."""

ADVICE = "start with --draft off, or with --draft-length goodput, which drafts only where it pays"
GOODPUT_ADVICE = "goodput goes by what steps usually take here: free the CPUs of other work, or start with --draft off"

log = logging.getLogger("offramp.draft")


class PayoffWatch:
    """Compares what drafted steps took with what plain ones would have; warns once, and again after a recovery."""

    def __init__(self, *, goodput: bool = False) -> None:
        self._goodput = goodput
        self._steps = self._drafted = self._plain = 0.0  # seconds at the last look
        self._num_drafts = 0  # at the last look
        self._num_slow = 0  # windows in a row
        self._told = False

    def look(self, now: Statistics) -> None:
        """After a step; cheap."""
        steps = now.step_seconds - self._steps
        if steps < WINDOW_SECONDS:
            return
        drafted, plain = now.drafted_seconds - self._drafted, now.drafted_plain_seconds - self._plain
        self._steps, self._drafted, self._plain = now.step_seconds, now.drafted_seconds, now.drafted_plain_seconds
        num_drafts = now.num_drafts - self._num_drafts
        self._num_drafts = now.num_drafts
        slower = drafted - plain > TOLERANCE * steps
        if self._goodput:
            slower = slower and num_drafts >= GOODPUT_DRAFTS
        self._num_slow = self._num_slow + 1 if slower else 0
        doubted = self._num_slow >= (GOODPUT_WINDOWS if self._goodput else 1)
        if doubted and not self._told:
            log.warning(
                "drafts do not pay: with them %.1f s of steps took what plain decoding would do in %.1f s; %s",
                drafted,
                plain,
                GOODPUT_ADVICE if self._goodput else ADVICE,
            )
        self._told = doubted
