"""When requests are sent, how many at once, and when it is over: bounded in number and time, and by Ctrl-C."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from offramp.bench.serve.prompts import Prompt
from offramp.bench.serve.sample import Sample

EndedBy = Literal["done", "duration limit", "interrupt"]


@dataclass(slots=True)
class Load:
    """What was sent, and what came of it. Times are seconds of one clock."""

    num_prompts: int
    start: float
    end: float = 0.0
    samples: list[Sample] = field(default_factory=list)  # in the order in which they ended
    num_sent: int = 0
    num_in_flight: int = 0
    max_in_flight: int = 0
    ended_by: EndedBy = "done"

    @property
    def num_cut(self) -> int:
        """Sent, but neither answered nor failed when it was over."""
        return self.num_sent - len(self.samples)

    @property
    def num_unsent(self) -> int:
        return self.num_prompts - self.num_sent


def arrivals(count: int, request_rate: float, seed: int) -> list[float]:
    """When requests are due, in seconds from the start: a Poisson process, or all at once at an infinite rate."""
    if math.isinf(request_rate):
        return [0.0] * count
    draw = random.Random(seed)
    due, now = [], 0.0
    for _ in range(count):
        due.append(now)
        now += draw.expovariate(request_rate)
    return due


async def run_load(
    prompts: Sequence[Prompt],
    ask: Callable[[Prompt], Awaitable[Sample]],
    *,
    due: Sequence[float],
    max_concurrency: int | None,
    duration_limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Load:
    """Send every prompt when it is due, at most so many at once, until the limit or until this task is cancelled.

    A cancellation (Ctrl-C) ends the load, not the task: what was measured so far is returned.
    """
    load = Load(num_prompts=len(prompts), start=clock())
    gate = asyncio.Semaphore(max_concurrency or len(prompts))

    async def send(prompt: Prompt) -> None:
        async with gate:
            load.num_sent += 1
            load.num_in_flight += 1
            load.max_in_flight = max(load.max_in_flight, load.num_in_flight)
            try:
                load.samples.append(await ask(prompt))
            finally:
                load.num_in_flight -= 1

    async def send_all() -> None:
        async with asyncio.TaskGroup() as group:
            for prompt, seconds in zip(prompts, due, strict=True):
                early = load.start + seconds - clock()
                if early > 0:
                    await asyncio.sleep(early)
                group.create_task(send(prompt))

    try:
        await asyncio.wait_for(send_all(), duration_limit)
    except TimeoutError:
        load.ended_by = "duration limit"
    except asyncio.CancelledError:
        load.ended_by = "interrupt"
    load.end = clock()
    return load
