"""How far a run of `offramp bench run` is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from offramp.cli.messages import say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from offramp.bench.run.rounds import Teller
    from offramp.bench.run.turn import Heard

TELL_SECONDS = 10.0
"""Between two lines."""


@contextmanager
def progress() -> Iterator[Teller]:
    """What a run tells."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield Bar(bar, bar.add_task("starting", total=None))


class Bar:
    """On a terminal."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._num_done = 0

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def turn(self, text: str, num_done: int, num_all: int) -> None:
        self._num_done = num_done
        self._bar.update(self._task, description=text, completed=num_done, total=num_all)

    def hear(self, heard: Heard) -> None:
        self._bar.update(self._task, completed=self._num_done + heard.num_ended)


class Lines:
    """Elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: float | None = None

    def say(self, text: str) -> None:
        say(text)

    def turn(self, text: str, num_done: int, num_all: int) -> None:
        now = self._clock()
        if self._told is None or now - self._told >= TELL_SECONDS:
            self._told = now
            say(f"{text} ({num_done} of {num_all} answers)")

    def hear(self, heard: Heard) -> None:
        pass
