"""An answer while it is written: an iterator that gives its pages back however it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from offramp.llm.answer import Answer
from offramp.llm.driver import Driver
from offramp.llm.output import Report, StreamDelta


class DeltaStream(Iterator[StreamDelta]):
    """Deltas of a submitted request. Closing, abandoning or interrupting it aborts the request."""

    def __init__(self, driver: Driver, answer: Answer) -> None:
        self._driver = driver
        self._answer = answer
        self._ready: deque[StreamDelta] = deque()
        self._closed = False

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt, as the model reads it."""
        return len(self._answer.request.prompt_token_ids)

    def report(self) -> Report:
        """What it took so far; of a stream that was closed early, choices that went on count as aborted."""
        return self._answer.report()

    def __next__(self) -> StreamDelta:
        try:
            if not self._ready:
                if self._closed or self._answer.finished:
                    raise StopIteration
                for timed in self._driver.receive(self._answer.request.request_id):
                    self._ready.append(self._answer.take(timed))
            return self._ready.popleft()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop here: an unfinished request is aborted and its pages come back. No further delta comes."""
        if not self._closed:
            self._driver.close(self._answer.request.request_id)
            self._closed = True  # only now: interrupted before, it is closed again when it is dropped
            self._ready.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
