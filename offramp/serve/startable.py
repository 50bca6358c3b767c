"""How a real model comes to run: found, loaded, its worker made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offramp.llm.drafter_pack import settled_drafter
from offramp.llm.loading import LoadedModel
from offramp.llm.making import fit_to_memory
from offramp.llm.memory import MemoryShare
from offramp.llm.serving import CALIBRATED, Serving
from offramp.llm.starting import FoundStart, ModelStart
from offramp.model.sources import check_known
from offramp.serve.hosted import Live
from offramp.serve.served import Served
from offramp.serve.worker import Worker


@dataclass(frozen=True, slots=True)
class Startable:
    """Where a model comes from (`offramp.serve.hosted.Start`). `tell` hears what its certificate covers."""

    names: tuple[str, ...]
    start: ModelStart
    max_queued: int
    share: MemoryShare | None
    tell: Callable[[str], object]

    def check(self) -> None:
        check_known(self.start.model)

    def find(self) -> FoundStartable:
        return FoundStartable(self, self.start.find(self.share))


@dataclass(frozen=True, slots=True)
class FoundStartable:
    """It, found (`offramp.serve.hosted.Found`)."""

    startable: Startable
    found: FoundStart

    @property
    def num_bytes(self) -> int:
        return self.found.num_bytes

    def bring_up(self) -> Live:
        startable = self.startable
        return bring_up(
            self.found.load(), startable.start.serving, startable.names, startable.max_queued, tell=startable.tell
        )


def bring_up(
    loaded: LoadedModel,
    serving: Serving,
    names: tuple[str, ...],
    max_queued: int,
    *,
    tell: Callable[[str], object] = lambda certificate: None,
) -> Live:
    """A worker over a loaded model, not started yet. Raises OfframpError for a mode that can't be kept."""
    serving = fit_to_memory(loaded, settled_drafter(loaded, serving))
    served = Served(loaded, serving, names)
    promises = served.promises
    certificate = promises.certificate() if serving.mode == CALIBRATED else None
    worker = Worker(loaded, serving, max_queued=max_queued)
    if certificate is not None:
        tell(certificate)
    return Live(served, worker)
