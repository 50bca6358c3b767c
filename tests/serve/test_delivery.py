"""When events go out: the first and the last at once, those between together where nobody sees the difference."""

from __future__ import annotations

import asyncio

import pytest

from offramp.core import Request, TokenEvent
from offramp.params import SamplingParams
from offramp.serve.delivery import STREAM_SECONDS, WHOLE_SECONDS, Delivery
from offramp.serve.ticket import Mailbox, Submission
from tests.serve.reading import in_loop


def submission(*, whole: bool) -> Submission:
    request = Request(request_id="r", prompt_token_ids=[1], params=SamplingParams(), seed=0)
    mailbox = Mailbox(asyncio.get_running_loop(), request)
    return Submission(
        request=request, mailbox=mailbox, client="", whole=whole, submitted=0.0, queue_due=9e9, total_due=9e9
    )


def token(number: int, *, last: bool = False) -> TokenEvent:
    return TokenEvent(request_id="r", choice=0, token_ids=(number,), finish_reason="length" if last else None)


class Reader:
    """Tells what has come when, in seconds of a clock that the test sets."""

    def __init__(self, *, whole: bool) -> None:
        self.submission = submission(whole=whole)
        self._delivery = Delivery()

    async def after(self, *events: TokenEvent, now: float, crowded: bool) -> list[int]:
        """The tokens that a turn with these events brings to the reader."""
        if any(event.finish_reason for event in events):
            self.submission.open_choices.clear()
        assert self._delivery.deliver({self.submission: list(events)} if events else {}, now, crowded=crowded) == []
        await asyncio.sleep(0)  # the loop's turn
        came, self.submission.mailbox._events = self.submission.mailbox._events, []
        return [each for timed in came for each in timed.event.token_ids]


@pytest.mark.parametrize(("whole", "seconds"), [(True, WHOLE_SECONDS), (False, STREAM_SECONDS)])
def test_the_first_and_the_last_at_once_the_others_when_due(whole: bool, seconds: float) -> None:
    @in_loop
    async def check() -> None:
        reader = Reader(whole=whole)
        assert await reader.after(token(1), now=10.0, crowded=True) == [1]
        assert await reader.after(token(2), now=10.0 + 0.4 * seconds, crowded=True) == []
        assert await reader.after(token(3), now=10.0 + 0.8 * seconds, crowded=True) == []
        assert await reader.after(now=10.0 + 1.1 * seconds, crowded=True) == [2, 3]  # others' turns count too
        assert await reader.after(token(4), now=10.0 + 1.2 * seconds, crowded=True) == []
        assert await reader.after(token(5, last=True), now=10.0 + 1.3 * seconds, crowded=True) == [4, 5]

    check()


@in_loop
async def test_a_stream_alone_gets_each_step_at_once() -> None:
    reader = Reader(whole=False)
    for number in range(4):
        assert await reader.after(token(number), now=1.0 + number / 1000, crowded=False) == [number]


@in_loop
async def test_streams_beside_each_other_are_told_together() -> None:
    delivery, streams = Delivery(), [submission(whole=False) for _ in range(3)]
    came: dict[int, list[int]] = {}

    async def step(number: int, *running: Submission) -> None:
        delivery.deliver({each: [token(number)] for each in running}, number * STREAM_SECONDS / 4, crowded=True)
        await asyncio.sleep(0)
        came[number] = [len(each.mailbox._events) for each in streams]

    await step(0, streams[0])
    await step(1, *streams[:2])  # the second one's first
    await step(2, *streams)
    await step(3, *streams)
    assert came == {0: [1, 0, 0], 1: [1, 1, 0], 2: [1, 1, 1], 3: [1, 1, 1]}
    await step(4, *streams)
    assert came[4] == [5, 4, 3]


@in_loop
async def test_the_times_are_those_of_the_steps() -> None:
    delivery, one = Delivery(), submission(whole=True)
    for number in range(3):
        delivery.deliver({one: [token(number)]}, float(number) / 10, crowded=False)
    one.open_choices.clear()
    delivery.deliver({one: [token(3, last=True)]}, 0.3, crowded=False)
    await asyncio.sleep(0)
    assert [timed.seconds for timed in await one.mailbox.collect()] == [0.0, 0.1, 0.2, 0.3]


def test_a_closed_loop_is_told_of() -> None:
    made: list[Submission] = []

    @in_loop
    async def make() -> None:
        made.append(submission(whole=False))

    make()
    assert Delivery().deliver({made[0]: [token(1)]}, 0.0, crowded=False) == made
