"""The server's models: which are in memory, who needs them there, and who makes room for whom.

    models = Models([Hosted(("small",), find_small), Hosted(("big",), find_big, when="demand")], memory=2 << 30)
    models.load_at_start()
    async with models.held("big", request.receive) as live:  # loads it, once for all who wait
        ticket = await live.worker.submit(...)

A model stays in memory while somebody holds it or its worker has requests. Loading and unloading are done in threads of
their own, one a model at most; one lock guards who is where, and is never held while something takes long.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from offramp.errors import OfframpError, QueueFullError, ServerStoppingError
from offramp.llm.memory import mib
from offramp.params import refused, shown
from offramp.serve.errors import HttpError
from offramp.serve.gone import WatchClient
from offramp.serve.hosted import Hosted, Live, Refused
from offramp.serve.loader import BusyError, Loader
from offramp.serve.snapshot import WorkerStatistics

PATIENCE_SECONDS = 30.0
"""That a model waits for others to become idle, where memory does not hold it besides them."""

RETRY_SECONDS = 10.0
"""After a failure to load, before that is tried again."""

BUSY_SECONDS = 1.0
"""The same where others were busy for too long."""

LOOK_SECONDS = 1.0
"""At most between two looks for idle models, where those don't stay."""

LAST_SECONDS = 5.0
"""For loads under way to end when the server stops."""

log = logging.getLogger("offramp.serve.models")


class Models:
    """Safe from any thread and event loop. Whoever made it calls `stop` in the end."""

    def __init__(
        self,
        hosted: Sequence[Hosted],
        *,
        memory: int | None = None,
        keep_alive_seconds: float | None = None,
        max_waiting: int = 128,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`memory`: bytes for the weights and K/V of all; None: there is no bound.

        After `keep_alive_seconds` without a request a model is unloaded; None: when another needs its memory.
        """
        assert hosted, "a server without models"
        self._hosted = tuple(hosted)
        self._by_name: dict[str, Hosted] = {}
        for each in hosted:
            for name in each.names:
                if name in self._by_name:
                    raise refused("served_model_name", name, "a name of its own for each model")
                self._by_name[name] = each
        self._max_waiting = max_waiting
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._loader = Loader(self._hosted, self._changed, memory=memory, clock=clock)
        self._threads: set[threading.Thread] = set()
        self._keep_alive_seconds = keep_alive_seconds
        self._stopped = threading.Event()

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[Hosted]:
        return iter(self._hosted)

    @property
    def num_open(self) -> int:
        """Requests that run or wait in all workers."""
        return sum(live.worker.num_open for live in self._live())

    @property
    def failure(self) -> BaseException | None:
        """The internal error that ended the engine of a model in memory, if one did."""
        return next((live.worker.failure for live in self._live() if live.worker.failure is not None), None)

    def find(self, name: object) -> Hosted:
        """The model of that name; None means the first. Raises HttpError (404) for one that is not here."""
        if name is None:
            return self._hosted[0]
        if not isinstance(name, str):
            raise refused("model", name, "a name")
        if name not in self._by_name:
            hint = f"this server has {', '.join(self._by_name)}"
            raise HttpError(404, f"there is no model {shown(name)}", hint=hint, param="model", code="model_not_found")
        return self._by_name[name]

    def listing(self) -> dict[str, object]:
        """GET /v1/models."""
        return {"object": "list", "data": [self.card(name) for name in self._by_name]}

    def card(self, name: str) -> dict[str, object]:
        """GET /v1/models/{name}."""
        with self._changed:
            return self.find(name).card(name)

    @asynccontextmanager
    async def held(self, name: object, receive: Receive) -> AsyncIterator[Live]:
        """The model of that name, in memory as long as this lasts; requests submitted meanwhile keep it there longer.

        Raises what `find` raises, UnavailableError, QueueFullError and ServerStoppingError, and ClientDisconnect when
        the client goes while the model is loaded: its body must have been read from `receive`.
        """
        hosted = self.find(name)
        self._hold(hosted)
        try:
            while isinstance(state := self._live_or_loading(hosted), Future):
                await _wait_for(state, receive)
            yield state
        finally:
            with self._changed:
                hosted.num_holds -= 1
                self._changed.notify_all()

    def load_at_start(self) -> None:
        """Load the models that are wanted at the start, as far as they fit, in this thread.

        Raises the error of an only model; with several, whoever can't be loaded is refused later, and the first error
        is raised only when there is no other model.
        """
        errors = [error for each in self._hosted if (error := self._load_first(each))]
        if len(errors) == len(self._hosted):
            raise errors[0]
        if self._keep_alive_seconds is not None:
            seconds = self._keep_alive_seconds
            threading.Thread(target=self._look_after, args=(seconds,), name="offramp-idle", daemon=True).start()

    def _look_after(self, keep_alive_seconds: float) -> None:
        while not self._stopped.wait(min(keep_alive_seconds / 4, LOOK_SECONDS)):
            self._loader.unload_unused(keep_alive_seconds)

    def statistics(self, hosted: Hosted) -> WorkerStatistics:
        """Of all engines that a model had. Counts never fall, whenever it is loaded or unloaded."""
        with self._changed:
            return hosted.statistics

    async def drain(self, deadline_seconds: float) -> int:
        """Let nothing new begin, and what runs end until the deadline; how many requests were cut."""
        self._stop_loading()
        return sum(await asyncio.gather(*(live.worker.drain(deadline_seconds) for live in self._live())))

    def stop(self) -> None:
        """Abort everything; may be called again. Loads under way get a few seconds to end."""
        self._stop_loading()
        self._stopped.set()
        for live in self._live():
            live.worker.stop()
        until = time.monotonic() + LAST_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))

    def _stop_loading(self) -> None:
        """Nothing is loaded any more, and who waits for that is told."""
        with self._changed:
            self._loader.stop()
            for each in self._hosted:
                if each.loading is not None:
                    _settle(each.loading)

    def _live(self) -> list[Live]:
        return [live for each in self._hosted if (live := each.live) is not None]

    def _hold(self, hosted: Hosted) -> None:
        with self._changed:
            if hosted.live is None:
                self._loader.check_running()
                if hosted.num_holds >= self._max_waiting:
                    hint = "try again later, or raise the limit of waiting requests"
                    raise QueueFullError(f"{hosted.num_holds} requests wait for {hosted.name} to be loaded", hint=hint)
            hosted.num_holds += 1
            hosted.last_asked = self._clock()

    def _live_or_loading(self, hosted: Hosted) -> Live | Future[None]:
        """The model; or its load under way, begun now if there is none: done when it has ended, well or not."""
        with self._changed:
            if hosted.live is not None:
                return hosted.live
            self._loader.check_running()
            if hosted.loading is not None:
                return hosted.loading
            now = self._clock()
            if hosted.refused is not None and now < hosted.refused.until:
                raise hosted.refused.error(hosted.name, now)
            loading = _new_loading()
            thread = threading.Thread(
                target=self._load_in_thread, args=(hosted, loading), name="offramp-loader", daemon=True
            )
            thread.start()
            hosted.loading = loading
            self._threads.add(thread)
            return loading

    def _load_in_thread(self, hosted: Hosted, loading: Future[None]) -> None:
        began = time.monotonic()
        try:
            self._loader.load(hosted, self._patience_seconds)
            _tell_loaded(hosted, began)
        except ServerStoppingError:
            pass
        except BusyError as error:
            self._refuse(hosted, Refused(error.message, error.hint, "model_busy", self._clock() + BUSY_SECONDS))
        except BaseException as error:  # whatever it is, others are served
            trace = None if isinstance(error, OfframpError) else error
            log.warning("can't load %s: %s", hosted.name, error, exc_info=trace)
            self._refuse(hosted, Refused.by(error, self._clock() + RETRY_SECONDS))
        finally:
            with self._changed:
                hosted.loading = None
                _settle(loading)
                self._threads.discard(threading.current_thread())

    def _load_first(self, hosted: Hosted) -> OfframpError | None:
        """At the start, when nobody waits yet. How it failed, if it did."""
        began = time.monotonic()
        try:
            hosted.startable.check()
            if hosted.when == "start":
                self._loader.load(hosted, patience_seconds=0.0)
                if len(self) > 1:
                    _tell_loaded(hosted, began)
        except BusyError:
            log.warning("%s is loaded when it is asked for: --memory does not hold it beside the others", hosted.name)
        except OfframpError as error:
            if len(self) > 1:
                log.warning("can't load %s: %s (hint: %s)", hosted.name, error, error.hint)
            self._refuse(hosted, Refused.by(error, self._clock() + RETRY_SECONDS))
            return error
        return None

    def _refuse(self, hosted: Hosted, refused: Refused) -> None:
        with self._changed:
            hosted.refused = refused
            hosted.num_failures += 1


def _tell_loaded(hosted: Hosted, began: float) -> None:
    log.info("loaded %s in %.1f s: %s", hosted.name, time.monotonic() - began, mib(hosted.num_bytes))


def _new_loading() -> Future[None]:
    loading: Future[None] = Future()
    loading.set_running_or_notify_cancel()  # who gives up waiting cancels nothing for the others
    return loading


def _settle(loading: Future[None]) -> None:
    if not loading.done():
        loading.set_result(None)


async def _wait_for(loading: Future[None], receive: Receive) -> None:
    waiting = asyncio.wrap_future(loading)
    async with WatchClient(receive, waiting.cancel) as watch:
        await asyncio.wait([waiting])
    if watch.gone:
        raise ClientDisconnect
