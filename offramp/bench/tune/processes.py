"""Methods at work, each in a process of its own that stays while it may have further turns (`rounds.Stand`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from offramp.bench.run.method import Method
from offramp.bench.run.process import MethodProcess
from offramp.bench.run.turn import Facts, Turn
from offramp.bench.tune.compare import Timed
from offramp.bench.tune.rounds import Turned
from offramp.bench.workloads.item import Item
from offramp.llm.memory import available_memory

WARM_TOKENS = 16
"""Of an answer that each process gives before it is measured."""
MARGIN = 0.03
"""Of the budget, as a start here and there takes longer than the one before, and processes take a moment to end."""
PREPARED_SECONDS = 10.0
"""A first start that took longer has perhaps prepared weights, which later ones find prepared."""


class Running(Protocol):
    """A method's process."""

    def start(self) -> Facts: ...

    def turn(self, items: Sequence[Item], *, streams: int = 1, max_tokens: int) -> Turn: ...

    def close(self) -> None: ...


Make = Callable[[Method, str], Running]
"""From a method and a model; does not start it."""


class Processes:
    """Ends all of them when its `with` block is left. The budget runs from its construction on.

    Where memory does not hold all of them, the one that had no turn for longest ends, and starts again for its next.
    """

    def __init__(
        self,
        model: str,
        items: Sequence[Item],
        *,
        streams: int,
        max_tokens: int,
        seconds: float,
        make: Make = MethodProcess,
    ) -> None:
        self._model = model
        self._items = items
        self._numbers = {item.name: number for number, item in enumerate(items)}
        self._streams = streams
        self._max_tokens = max_tokens
        self._end = time.monotonic() + (1 - MARGIN) * seconds
        self.budget_seconds = seconds
        self._make = make
        self._running: dict[str, Running] = {}  # who had no turn for longest first
        self._peak_bytes = 0  # of any of them
        self.start_seconds = 0.0

    def begin(self, plain: Method) -> Facts:
        """Start plain decoding, which tells what the model is. Raises OfframpError if that can't be."""
        facts = self._start(plain)
        if self.start_seconds > PREPARED_SECONDS:
            self.end(plain)
            facts = self._start(plain)
        return facts

    def take(self, method: Method, prompts: Sequence[int]) -> Turned:
        if method.name not in self._running:
            self._start(method)
        running = self._running[method.name] = self._running.pop(method.name)
        items = [self._items[number] for number in prompts]
        try:
            turn = running.turn(items, streams=self._streams, max_tokens=self._max_tokens)
        except BaseException:
            self.end(method)
            raise
        self._peak_bytes = max(self._peak_bytes, turn.taken.peak_bytes or 0)
        return Turned(
            timed=Timed(turn.taken.seconds, turn.taken.output_tokens),
            answers={self._numbers[each.item]: each.token_ids for each in turn.answers},
            failed={self._numbers[each.item]: each.reason for each in turn.failed},
            note=turn.taken.note,
        )

    def end(self, method: Method) -> None:
        """Its process; does nothing where there is none."""
        running = self._running.pop(method.name, None)
        if running is not None:
            running.close()

    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._running:
            _, running = self._running.popitem()
            running.close()

    def _start(self, method: Method) -> Facts:
        """Start and load it, and let it answer once what does not count: memory is touched, threads are there."""
        while self._running and available_memory() < self._peak_bytes:
            self._running.pop(next(iter(self._running))).close()
        began = time.monotonic()
        running = self._running[method.name] = self._make(method, self._model)
        try:
            facts = running.start()
            running.turn(self._items[:1], max_tokens=min(WARM_TOKENS, self._max_tokens))
        except BaseException:
            self.end(method)
            raise
        self.start_seconds = time.monotonic() - began
        return facts
