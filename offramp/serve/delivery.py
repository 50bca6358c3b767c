"""From the engine's thread to the readers' loops: one call a step and loop, however many requests it brings news of.

Each time a loop wakes up, it takes a core from the engine for a moment. What no reader would see earlier anyway is
therefore told later, and together: a whole answer's tokens, and with many streams those of the same few hundredths of a
second. The first tokens and the end are never kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVarTuple

from offramp.core import TokenEvent
from offramp.llm.driver import Timed
from offramp.serve.ticket import Mailbox, Submission

WHOLE_SECONDS = 0.5
"""That tokens of an answer which is sent whole may be kept; its text is then made little by little."""

STREAM_SECONDS = 0.05
"""That tokens of streams may be kept while others run: they go out together, and 20 chunks a second look smooth."""

Arguments = TypeVarTuple("Arguments")

Post = list[tuple[Mailbox, list[Timed]]]


def call_in(
    loop: asyncio.AbstractEventLoop,
    callback: Callable[[*Arguments], object],
    *arguments: *Arguments,
) -> bool:
    """Have a loop call something soon, from any thread. False when the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


class Delivery:
    """Keeps events until they are due, then puts them into their mailboxes. For the engine's thread only."""

    def __init__(self) -> None:
        self._kept: dict[Submission, list[Timed]] = {}
        self._told: dict[Submission, float] = {}  # when a request's events last went out; none yet: absent
        self._streams_told = -STREAM_SECONDS  # when those of all streams did

    def deliver(self, news: Mapping[Submission, list[TokenEvent]], now: float, *, crowded: bool) -> list[Submission]:
        """Take a turn's events in, and send what is due; `crowded`: several requests run.

        Returns the requests whose loop is closed, so that nobody will ever read.
        """
        for submission, events in news.items():
            self._kept.setdefault(submission, []).extend(Timed(event, now) for event in events)
        streams_due = not crowded or now - self._streams_told >= STREAM_SECONDS
        if streams_due:
            self._streams_told = now
        due = [submission for submission in self._kept if self._is_due(submission, now, streams_due=streams_due)]
        by_loop: dict[asyncio.AbstractEventLoop, list[Submission]] = {}
        for submission in due:
            by_loop.setdefault(submission.mailbox.loop, []).append(submission)
            self._told[submission] = now
        lost: list[Submission] = []
        for loop, submissions in by_loop.items():
            if not call_in(loop, _distribute, [(each.mailbox, self._kept[each]) for each in submissions]):
                lost += submissions
        for submission in due:
            del self._kept[submission]
            if not submission.open_choices:
                del self._told[submission]
        return lost

    def forget(self) -> None:
        """Drop what is kept: its requests end otherwise."""
        self._kept.clear()
        self._told.clear()

    def _is_due(self, submission: Submission, now: float, *, streams_due: bool) -> bool:
        told = self._told.get(submission)
        if told is None or not submission.open_choices:
            return True
        if submission.whole:
            return now - told >= WHOLE_SECONDS
        return streams_due


def _distribute(post: Post) -> None:
    for mailbox, events in post:
        mailbox.deliver(events)
