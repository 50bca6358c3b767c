"""One of the server's models, in memory or not: its names, its state, and how it comes to run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from offramp.errors import (
    CorruptModelError,
    InvalidRequestError,
    ModelNotFoundError,
    OfframpError,
    ResourceError,
    UnsupportedModelError,
)
from offramp.llm.serving import LOSSLESS
from offramp.params import refused
from offramp.serve.errors import UnavailableError
from offramp.serve.offers import offers
from offramp.serve.served import Served
from offramp.serve.snapshot import WorkerStatistics, after
from offramp.serve.worker import Worker

State = Literal["unloaded", "loading", "loaded", "failed"]
When = Literal["start", "demand"]
"""A model is loaded: at the start, if memory allows, or when a request names it."""


@dataclass(frozen=True, slots=True)
class Live:
    """A model in memory, and the worker that runs it."""

    served: Served
    worker: Worker


class Found(Protocol):
    """A model that can be brought up, and the memory that this takes."""

    @property
    def num_bytes(self) -> int: ...

    def bring_up(self) -> Live:
        """Load it, and make its worker, which is not started yet. Raises OfframpError."""
        ...


class Start(Protocol):
    """Where a model comes from. Both may raise OfframpError, and are called in whatever thread."""

    def check(self) -> None:
        """Refuse what can be known to be impossible without fetching or opening anything."""
        ...

    def find(self) -> Found:
        """Look for the model, and fetch it if need be."""
        ...


REASONS: tuple[tuple[type[OfframpError], str], ...] = (
    (ModelNotFoundError, "it was not found"),
    (CorruptModelError, "its files are damaged"),
    (UnsupportedModelError, "it is of a kind that does not run here"),
    (ResourceError, "memory or disk space is too small"),
    (InvalidRequestError, "an option that it was given can't be honoured"),
)
"""What clients learn of a failure to load: the error's own text names files of the server."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why requests for a model that is not in memory are refused for a while."""

    reason: str
    hint: str
    code: str
    until: float  # seconds of `time.monotonic`

    @classmethod
    def by(cls, error: BaseException, until: float) -> Self:
        """After a failure to load."""
        reason = next((reason for kind, reason in REASONS if isinstance(error, kind)), "of an internal error")
        return cls(reason, "the server's log says more", "model_load_failed", until)

    def error(self, name: str, now: float) -> UnavailableError:
        """What a request is told."""
        message = f"the model {name} can't be loaded: {self.reason}"
        return UnavailableError(message, hint=self.hint, code=self.code, retry_after_seconds=self.until - now)


@dataclass(slots=True, eq=False)
class Hosted:
    """A model under its names. `Models` alone changes it, under its lock."""

    names: tuple[str, ...]  # the first is that of metrics
    startable: Start
    when: When = "start"
    mode: str = LOSSLESS  # of requests that ask for none
    created: int = field(default_factory=lambda: int(time.time()))
    live: Live | None = None
    loading: Future[None] | None = None  # done when nobody loads any more, well or not
    refused: Refused | None = None
    num_bytes: int = 0  # of memory that it has
    num_holds: int = 0  # requests that need it to be there, and are not with its worker yet
    last_asked: float = 0.0  # seconds of the models' clock, as the next
    idle_since: float = math.inf  # as far as somebody looked
    num_loads: int = 0
    num_failures: int = 0
    max_model_len: int | None = None  # of the latest load, as what follows
    exit_layers: tuple[int, ...] = ()
    offers: Mapping[str, object] | None = None
    leaving: list[Worker] = field(default_factory=list)  # that are being unloaded
    past: WorkerStatistics = field(default_factory=WorkerStatistics)  # of engines that are no more

    def __post_init__(self) -> None:
        if not self.names or not all(self.names):
            raise refused("served_model_name", self.names, "non-empty names")

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def state(self) -> State:
        if self.live is not None:
            return "loaded"
        if self.loading is not None:
            return "loading"
        return "unloaded" if self.refused is None else "failed"

    @property
    def idle(self) -> bool:
        """It is in memory, and no request needs that."""
        return self.live is not None and self.num_holds == 0 and self.live.worker.num_open == 0

    @property
    def statistics(self) -> WorkerStatistics:
        """Of all its engines since the server's start; gauges are those of the present one."""
        total = self.past
        for worker in self.leaving:
            total = after(total, worker.statistics)
        return after(total, WorkerStatistics() if self.live is None else self.live.worker.statistics)

    def put(self, live: Live, num_bytes: int, now: float) -> None:
        """It is in memory now."""
        self.live, self.num_bytes, self.last_asked, self.refused = live, num_bytes, now, None
        self.num_loads += 1
        self.max_model_len = live.served.loaded.max_context
        self.exit_layers = tuple(live.served.promises.exit_layers)
        self.offers = offers(live.served.loaded, live.served.serving, live.served.promises)

    def take(self) -> Live:
        """From now on it is on its way out, and nobody finds it; `forget` its worker once that has stopped."""
        assert self.live is not None, "a model that is not there"
        live, self.live = self.live, None
        self.leaving.append(live.worker)
        return live

    def forget(self, worker: Worker) -> None:
        """Keep of a stopped worker its counters alone."""
        self.leaving.remove(worker)
        self.past = after(self.past, worker.statistics)

    def card(self, name: str) -> dict[str, object]:
        """What /v1/models tells of it."""
        status: dict[str, object] = {"value": self.state}
        if self.state == "loaded":
            status["memory_bytes"] = self.num_bytes
        elif self.state == "failed" and self.refused is not None:
            status["error"] = self.refused.reason
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "offramp",
            "root": self.name,
            "parent": None,
            "max_model_len": self.max_model_len,
            "status": status,
            "offramp": self.offers,
        }
