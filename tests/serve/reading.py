"""Submit requests to a worker and read their tickets to the end."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec

from offramp import LLM
from offramp.core import Request, SamplingParams, TokenEvent
from offramp.llm import LoadedModel
from offramp.llm.answer import Answer
from offramp.llm.making import make_request
from offramp.llm.output import RequestOutput
from offramp.llm.promises import Kept
from offramp.llm.serving import Serving
from offramp.params import RequestOptions
from offramp.serve.ticket import Ticket
from offramp.serve.worker import Worker
from offramp.testing.gate import Gate
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing

P = ParamSpec("P")

TEST_SECONDS = 60.0

VOCAB = chat_tokenizer().vocab_size

WELL = mixing(VOCAB)
"""A hash of the whole history: one wrong token changes all that follow."""

LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)

numbers = itertools.count()


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """An async test, which fails instead of hanging."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def working(
    loaded: LoadedModel,
    gate: Gate | None = None,
    *,
    serving: Serving | None = None,
    max_queued: int = 128,
    clock: Callable[[], float] = time.perf_counter,
) -> AsyncIterator[Worker]:
    """A started worker without drafts by default, stopped in the end whatever happens; then no page is held."""
    worker = Worker(loaded, serving or Serving(draft="off"), max_queued=max_queued, clock=clock)
    worker.start()
    try:
        yield worker
    finally:
        if gate is not None:
            gate.open()
        worker.stop()
    if worker.failure is None:
        statistics = worker.statistics
        assert (statistics.num_used_pages, statistics.num_running, statistics.num_waiting) == (0, 0, 0)
        assert statistics.num_queued == 0


def ask(
    loaded: LoadedModel,
    prompt: str | list[int],
    params: SamplingParams = LONG,
    *,
    serving: Serving | None = None,
    options: RequestOptions | None = None,
    request_id: str | None = None,
) -> Request:
    """A request as the front doors make it."""
    ids = loaded.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    drafting = (serving or Serving(draft="off")).drafting(options, loaded.tokenizer)
    return make_request(loaded, request_id or f"request-{next(numbers)}", ids, params, drafting)


async def read(ticket: Ticket) -> list[TokenEvent]:
    """All events to the end."""
    return [timed.event async for events in ticket for timed in events]


async def answer(loaded: LoadedModel, ticket: Ticket) -> RequestOutput:
    """The whole answer, put together as `LLM` does."""
    taken = Answer(
        ticket.request,
        None,
        loaded.tokenizer,
        started=ticket.submitted,
        depth=loaded.config.num_layers,
        kept=Kept(mode="lossless"),
    )
    async for events in ticket:
        assert events, "at least one event a call"
        for timed in events:
            taken.take(timed)
    return taken.output()


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def ends(events: list[TokenEvent]) -> list[str]:
    """Finish reasons in the order of the choices' ends."""
    return [event.finish_reason for event in events if event.finish_reason is not None]


def solo(prompt: list[int], params: SamplingParams = LONG) -> list[int]:
    """What a model that follows WELL says when it is alone."""
    [output] = LLM.from_loaded(scripted_model(WELL), Serving(draft="off")).generate(prompt, params)
    return output.outputs[0].token_ids


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
