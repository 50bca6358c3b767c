"""Several scripted models as one server's: each comes when the test lets it, or fails as the test says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.types import Message

from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.serve.app import make_app
from offramp.serve.hosted import Hosted, Live, When
from offramp.serve.models import Models
from offramp.serve.settings import ServerSettings
from offramp.serve.startable import bring_up
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import Api

WELL = mixing(chat_tokenizer().vocab_size, first=3)
PATIENCE_SECONDS = 30.0


PLAIN = Serving(draft="off", max_num_seqs=4)


class Scripted:
    """Where a model comes from; `arriving` is set once somebody looks for it, who then waits for `open`."""

    def __init__(
        self,
        *names: str,
        num_bytes: int = 10,
        when: When = "demand",
        make: Callable[[], LoadedModel] = lambda: scripted_model(WELL),
        serving: Serving = PLAIN,
    ) -> None:
        self.names = names
        self.num_bytes = num_bytes
        self.when = when
        self.error: BaseException | None = None
        self.unknown: BaseException | None = None
        self.num_finds = 0
        self.arriving = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self._make = make
        self._serving = serving

    def check(self) -> None:
        if self.unknown is not None:
            raise self.unknown

    def find(self) -> Scripted:
        self.num_finds += 1
        self.arriving.set()
        assert self.open.wait(PATIENCE_SECONDS), "the test did not let it come"
        if self.error is not None:
            raise self.error
        return self

    def bring_up(self) -> Live:
        return bring_up(self._make(), self._serving, self.names, 128)

    def hosted(self) -> Hosted:
        return Hosted(self.names, self, when=self.when)


@contextmanager
def hosting(
    *scripted: Scripted,
    memory: int | None = None,
    keep_alive_seconds: float | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    max_waiting: int = 8,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Models]:
    """The models, stopped in the end."""
    models = Models(
        [each.hosted() for each in scripted],
        memory=memory,
        keep_alive_seconds=keep_alive_seconds,
        patience_seconds=patience_seconds,
        max_waiting=max_waiting,
        clock=clock,
    )
    try:
        yield models
    finally:
        for each in scripted:
            each.open.set()
        models.stop()


class HostApi(Api):
    """An application over several models."""

    def __init__(self, models: Models, settings: ServerSettings, runner: asyncio.Runner) -> None:
        self.app = make_app(models, settings)
        self.models = models
        self._runner = runner


@contextmanager
def hosting_api(*scripted: Scripted, memory: int | None = None, **options: Any) -> Iterator[HostApi]:
    """Their application."""
    runner = asyncio.Runner()  # has a loop from its first use on
    try:
        with hosting(*scripted, memory=memory, **options) as models:
            yield HostApi(models, ServerSettings(), runner)
    finally:
        runner.close()


async def stays() -> Message:
    """A client that does not go away."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


def states(models: Models) -> list[str]:
    """In the models' order."""
    return [hosted.state for hosted in models]


def codes(errors: Sequence[BaseException]) -> set[str]:
    """Of errors that clients are told."""
    return {getattr(error, "code", type(error).__name__) for error in errors}
