"""Bringing models into memory and out of it: within a bound, idle ones making room, each failure cleaned up after."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence

from offramp.errors import ResourceError, ServerStoppingError
from offramp.llm.memory import mib
from offramp.serve.hosted import Hosted, Live
from offramp.serve.room import Idle, to_unload

POLL_SECONDS = 0.05
"""Between two looks at busy workers, which don't tell when they become idle."""

log = logging.getLogger("offramp.serve.models")


class BusyError(ResourceError):
    """Models that can't be unloaded take the memory."""

    def __init__(self) -> None:
        hint = "try again later; a larger --memory holds more models at once"
        super().__init__("the memory is taken by models that are busy", hint=hint)


class Loader:
    """For several threads at once, each with a model of its own; `changed` guards the models' fields, and ours."""

    def __init__(
        self,
        models: Sequence[Hosted],
        changed: threading.Condition,
        *,
        memory: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`memory`: bytes for the weights and K/V of all models in memory; None: there is no bound."""
        self._models = models
        self._changed = changed
        self._memory = memory
        self._clock = clock
        self._used = 0  # bytes, those of models on their way in or out too
        self._leaving = 0  # of those, on their way out
        self._stopping = False

    def load(self, model: Hosted, patience_seconds: float) -> None:
        """Bring a model in: it is there when this returns. Without patience none leaves for it.

        Raises OfframpError: BusyError where others are busy all the time, ServerStoppingError after `stop`.
        """
        began = time.monotonic()
        found = model.startable.find()
        num_bytes = found.num_bytes
        self._make_room(model, num_bytes, patience_seconds)
        try:
            live = found.bring_up()
        except BaseException:
            self._give_back(num_bytes)
            raise
        with self._changed:
            too_late = self._stopping
            if not too_late:
                model.put(live, num_bytes, self._clock())
        if too_late:
            live.worker.stop()
            self.check_running()
        if len(self._models) > 1:
            log.info("loaded %s in %.1f s: %s", model.name, time.monotonic() - began, mib(num_bytes))

    def stop(self) -> None:
        """Let no model in any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def check_running(self) -> None:
        """Raise after `stop`."""
        if self._stopping:
            raise ServerStoppingError("the server is stopping", hint="send the request to another server, or later")

    def _make_room(self, model: Hosted, needed: int, patience_seconds: float) -> None:
        """Take so much memory; idle models leave for it, and busy ones are waited for."""
        if self._memory is None:
            return
        if needed > self._memory:
            message = f"{model.name} takes {mib(needed)}, and all models may take {mib(self._memory)}"
            raise ResourceError(message, hint="raise --memory, or lower its kv_memory or max_model_len")
        deadline = time.monotonic() + patience_seconds
        while not self._take(needed, self._memory, deadline):
            pass

    def _take(self, needed: int, memory: int, deadline: float) -> bool:
        """Take the memory if it is there. Else send idle models away, or wait a moment, and don't."""
        with self._changed:
            self.check_running()
            missing = needed - (memory - self._used)
            if missing <= 0:
                self._used += needed
                return True
            if time.monotonic() >= deadline:
                raise BusyError
            idle = [Idle(each, each.num_bytes, each.last_asked) for each in self._models if each.idle]
            leaving = [(each, each.num_bytes, each.take()) for each in to_unload(missing - self._leaving, idle) or []]
            self._leaving += sum(num_bytes for _, num_bytes, _ in leaving)
            if not leaving:
                self._changed.wait(POLL_SECONDS)
        while leaving:
            self._unload(leaving)
        return False

    def _unload(self, leaving: list[tuple[Hosted, int, Live]]) -> None:
        """Free the memory of the last of these, which nobody can find any more."""
        model, num_bytes, live = leaving.pop()
        live.worker.stop()
        with self._changed:
            model.forget(live.worker)
        del live
        gc.collect()  # engines hold themselves
        with self._changed:
            self._leaving -= num_bytes
        self._give_back(num_bytes)
        log.info("unloaded %s: %s", model.name, mib(num_bytes))

    def _give_back(self, num_bytes: int) -> None:
        with self._changed:
            self._used -= num_bytes
            self._changed.notify_all()
