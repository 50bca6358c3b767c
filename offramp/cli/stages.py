"""What is under way in a command that takes long: bars on a terminal, elsewhere lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from offramp.cli.messages import say

if TYPE_CHECKING:
    from rich.progress import Progress

    from offramp.calibrate.answers import Tell
    from offramp.calibrate.walk import Stage

TELL_SECONDS = 10.0
"""Between two lines about the same thing."""


def told_in_lines(text: str) -> Tell:
    """A line where something begins, then now and then how far it is and what time is left."""
    say(text)
    began = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done and done < total and now - told >= TELL_SECONDS:
            told = now
            say(f"{text}: {done} of {total}, about {duration((now - began) / done * (total - done))} left")

    return tell


def duration(seconds: float) -> str:
    """For people, rounded up."""
    return f"{math.ceil(seconds)} s" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


@contextmanager
def bars() -> Iterator[Progress | None]:
    """Room for bars on stderr; None where that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress


@contextmanager
def stages() -> Iterator[Stage]:
    """Shows what is under way: on a terminal bars, elsewhere lines."""
    with bars() as progress:
        if progress is None:
            yield told_in_lines
            return

        def begin_bar(text: str) -> Tell:
            task = progress.add_task(text, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield begin_bar
