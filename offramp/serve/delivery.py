"""From the engine's thread to the readers' loops: one call a step and loop, however many requests it brings news of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVarTuple

from offramp.llm.driver import Timed
from offramp.serve.ticket import Mailbox, Submission

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


def deliver(news: Mapping[Submission, list[Timed]]) -> list[Submission]:
    """Put events into their mailboxes; returns the requests whose loop is closed, so that nobody will ever read."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Submission]] = {}
    for submission in news:
        by_loop.setdefault(submission.mailbox.loop, []).append(submission)
    lost: list[Submission] = []
    for loop, submissions in by_loop.items():
        post = [(submission.mailbox, news[submission]) for submission in submissions]
        if not call_in(loop, _distribute, post):
            lost += submissions
    return lost


def _distribute(post: Post) -> None:
    for mailbox, events in post:
        mailbox.deliver(events)
