"""The engine requests behind one HTTP request: submitted together, read together, given up together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from offramp.core import Request
from offramp.errors import ServerStoppingError
from offramp.llm.answer import Answer
from offramp.llm.driver import Timed
from offramp.llm.making import make_request
from offramp.llm.output import Report, RequestOutput, StreamDelta
from offramp.serve.asked import Asked
from offramp.serve.errors import expired
from offramp.serve.report import merged
from offramp.serve.request_metrics import RequestTrace
from offramp.serve.served import Served
from offramp.serve.ticket import Ticket
from offramp.serve.worker import Worker

Added = tuple[int, StreamDelta]
"""A prompt's number, and what a step added to one of its choices."""


class Running(Protocol):
    """An answer on its way. Whoever opened it closes it, whatever happened."""

    @property
    def finished(self) -> bool: ...

    @property
    def started(self) -> float | None:
        """When its first rows ran (`time.perf_counter`); None while it waits."""
        ...

    def close(self) -> None:
        """Give up what has not ended: its pages come back after the present step."""
        ...

    def report(self) -> Report:
        """What it took so far."""
        ...

    def outputs(self) -> list[RequestOutput]:
        """The whole answers, once finished."""
        ...

    def batches(self) -> AsyncGenerator[list[Added]]:
        """What comes, in order of time. Raises the error that ended a choice."""
        ...


class Run:
    """One that engines write (`Running`)."""

    def __init__(self, asked: Asked, answers: list[Answer], trace: RequestTrace, seconds: float) -> None:
        self._asked = asked
        self._answers = answers
        self._trace = trace
        self._seconds = seconds
        self._tickets: list[Ticket] = []

    @classmethod
    async def open(
        cls,
        worker: Worker,
        served: Served,
        asked: Asked,
        *,
        request_id: str,
        client: str,
        salt: str,
        seconds: float,
        spent: float,
        trace: RequestTrace,
    ) -> Run:
        """Submit all of it, or nothing. Raises what the worker raises.

        `seconds` are the request's, of which so many are `spent`.
        """
        requests = [
            make_request(
                served.loaded,
                f"{request_id}-{number}",
                prompt.token_ids,
                asked.params,
                asked.how.drafting,
                exits=asked.kept.exits,
                big_little=asked.kept.big_little,
                cache_salt=f"{salt}{asked.cache_salt}",
                grammar=asked.grammar,
                shown=asked.shown,
            )
            for number, prompt in enumerate(asked.prompts)
        ]
        run = cls(asked, [_answer(request, served, asked) for request in requests], trace, seconds)
        try:
            for request in requests:
                run._tickets.append(
                    await worker.submit(request, client=client, whole=not asked.stream, total_seconds=seconds - spent)
                )
        except BaseException:
            run.close()
            raise
        return run

    def close(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()

    @property
    def finished(self) -> bool:
        return all(answer.finished for answer in self._answers)

    @property
    def started(self) -> float | None:
        return min((ticket.started for ticket in self._tickets if ticket.started is not None), default=None)

    def report(self) -> Report:
        return merged([answer.report() for answer in self._answers])

    def outputs(self) -> list[RequestOutput]:
        return [answer.output() for answer in self._answers]

    async def batches(self) -> AsyncGenerator[list[Added]]:
        async with aclosing(_together(self._tickets)) as arriving:
            async for prompt, events in arriving:
                yield [self._take(prompt, timed) for timed in events]

    def _take(self, prompt: int, timed: Timed) -> Added:
        delta = self._answers[prompt].take(timed)
        if delta.error is not None:
            raise delta.error
        if delta.finish_reason == "abort":
            if self._tickets[prompt].expired:
                raise expired(self._seconds)
            hint = "send the request to another server, or later"
            raise ServerStoppingError("the server stopped before the answer was whole", hint=hint)
        self._trace.tokens(len(delta.token_ids), prompt * self._asked.params.n + delta.index, timed.seconds)
        return prompt, delta


def _answer(request: Request, served: Served, asked: Asked) -> Answer:
    return Answer(
        request,
        None,
        served.loaded.tokenizer,
        started=time.perf_counter(),
        depth=served.loaded.config.num_layers,
        kept=asked.kept,
        token_report=asked.how.token_report,
        shown=asked.shown,
    )


async def _together(tickets: list[Ticket]) -> AsyncGenerator[tuple[int, list[Timed]]]:
    """Events of all tickets as they come, with the ticket's number."""
    if len(tickets) == 1:
        async for events in tickets[0]:
            yield 0, events
        return
    waiting = {asyncio.ensure_future(anext(ticket, None)): number for number, ticket in enumerate(tickets)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = waiting.pop(task)
                arrived = task.result()
                if arrived is not None:
                    waiting[asyncio.ensure_future(anext(tickets[number], None))] = number
                    yield number, arrived
    finally:
        for task in waiting:
            task.cancel()
