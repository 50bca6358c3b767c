"""An engine's requests run to their ends, timed step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from offramp.core import Request, TokenEvent
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics

C = TypeVar("C")


@dataclass(frozen=True, slots=True, eq=False)
class Driven(Generic[C]):
    """Seconds from the start; decoding is what comes after every stream has its first token."""

    token_ids: list[list[int]]
    first: float
    total: float
    decoded: int  # tokens that came after `first`
    at_first: C  # what was counted by then
    at_end: C


def drive(
    engine: Engine,
    requests: Sequence[Request],
    read: Callable[[Statistics], C],
    hear: Callable[[TokenEvent], object] = lambda event: None,
) -> Driven[C]:
    """All requests at once. `read` takes counts, `hear` is told every event. Raises a request's error."""
    token_ids: dict[str, list[int]] = {request.request_id: [] for request in requests}
    waiting = set(token_ids)
    at_first: C | None = None
    first = last = 0.0
    num_first = 0
    started = time.perf_counter()
    for request in requests:
        engine.add_request(request)
    while engine.has_work:
        events = engine.step()
        last = time.perf_counter()
        for event in events:
            if event.error is not None:
                raise event.error
            token_ids[event.request_id] += event.token_ids
            waiting.discard(event.request_id)
            hear(event)
        if at_first is None and not waiting:
            first, num_first = last, sum(map(len, token_ids.values()))
            at_first = read(engine.statistics)
    assert at_first is not None, "an answer without a token"
    answers = list(token_ids.values())
    decoded = sum(map(len, answers)) - num_first
    return Driven(answers, first - started, last - started, decoded, at_first, read(engine.statistics))
