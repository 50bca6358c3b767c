"""So many requests at a time through an engine, the next one as soon as one ends, every event with its time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from offramp.core import Request, TokenEvent
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.llm.driver import Timed

Tell = Callable[[int, int], None]
"""Requests that ended so far, and tokens that came."""


@dataclass(slots=True)
class Course:
    """What one request went through. Times are those of `time.perf_counter`."""

    request: Request
    started: float = 0.0  # when it was handed to the engine
    events: list[Timed] = field(default_factory=list)
    error: OfframpError | None = None

    def has_run(self, engine: Engine) -> bool:
        """Some of its prompt has run: it may wait for a place in the engine, too."""
        return bool(self.events) or engine.has_started(self.request.request_id)


@dataclass(frozen=True, slots=True)
class Driven:
    """All requests at their ends. See `TurnLine` for what counts as decoding."""

    courses: Mapping[str, Course]  # by request id
    seconds: float
    decode_seconds: float
    decoded_tokens: int


def drive(engine: Engine, requests: Sequence[Request], streams: int, tell: Tell) -> Driven:
    """Run them all; one that fails has its error in its course. The engine has nothing else to do."""
    assert not engine.has_work, "an engine with other work"
    waiting = deque(Course(request) for request in requests)
    courses = {course.request.request_id: course for course in waiting}
    running: dict[str, Course] = {}
    decode_seconds, decoded, num_tokens, num_ended = 0.0, 0, 0, 0
    began = last = time.perf_counter()
    while waiting or running:
        num_ended += _hand_in(engine, waiting, running, streams)
        if not running:
            continue
        prompts = [course for course in running.values() if not course.events]
        events = engine.step()
        now = time.perf_counter()
        came = _take(events, now, running)
        if not any(course.has_run(engine) for course in prompts):
            decode_seconds += now - last
            decoded += came
        last, num_tokens = now, num_tokens + came
        num_ended += sum(1 for event in events if event.finish_reason)
        tell(num_ended, num_tokens)
    return Driven(courses, last - began, decode_seconds, decoded)


def _hand_in(engine: Engine, waiting: deque[Course], running: dict[str, Course], streams: int) -> int:
    """Fill the streams; how many requests the engine refused."""
    num_refused = 0
    while waiting and len(running) < streams:
        course = waiting.popleft()
        course.started = time.perf_counter()
        try:
            engine.add_request(course.request)
        except OfframpError as error:
            course.error = error
            num_refused += 1
        else:
            running[course.request.request_id] = course
    return num_refused


def _take(events: Sequence[TokenEvent], now: float, running: dict[str, Course]) -> int:
    """Give each its events, and let go of those that ended; how many tokens came."""
    for event in events:
        course = running[event.request_id]
        course.events.append(Timed(event, now))
        course.error = event.error
        if event.finish_reason:
            del running[event.request_id]
    return sum(len(event.token_ids) for event in events)
