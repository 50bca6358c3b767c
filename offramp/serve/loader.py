"""Bringing models into memory and out of it: within a bound, idle ones making room, each failure cleaned up after."""

from __future__ import annotations

import gc
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from offramp.errors import ResourceError, ServerStoppingError
from offramp.llm.memory import mib
from offramp.serve.hosted import Hosted, Live
from offramp.serve.room import Idle, to_unload

POLL_SECONDS = 0.05
"""Between two looks at busy workers, which don't tell when they become idle."""

log = logging.getLogger("offramp.serve.models")

_Leaving = tuple[Hosted, int, Live]
"""A model, its bytes, and what it was."""


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
        found = model.startable.find()
        num_bytes = found.num_bytes
        self._make_room(model, num_bytes, patience_seconds)
        try:
            live = found.bring_up()
        except BaseException:
            self._give_back(num_bytes)
            raise
        with self._changed:
            self.check_running()
            model.put(live, num_bytes, self._clock())
            live.worker.start()  # now that it is known: whoever stops all models stops it too

    def unload_unused(self, seconds: float) -> None:
        """Unload who has been idle for so long, as far as looks from time to time can tell."""
        now = self._clock()
        with self._changed:
            for each in self._models:
                if not each.idle:
                    each.idle_since = math.inf
                else:
                    each.idle_since = max(each.last_asked, min(each.idle_since, now))
            leaving = self._send_away(each for each in self._models if each.idle and now - each.idle_since >= seconds)
        self._unload(leaving)

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
        memory = sys.maxsize if self._memory is None else self._memory
        if needed > memory:
            message = f"{model.name} takes {mib(needed)}, and all models may take {mib(memory)}"
            raise ResourceError(message, hint="raise --memory, or lower its kv_memory or max_model_len")
        deadline = time.monotonic() + patience_seconds
        while not self._take(needed, memory, deadline):
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
            leaving = self._send_away(to_unload(missing - self._leaving, idle) or [])
            if not leaving:
                self._changed.wait(POLL_SECONDS)
        self._unload(leaving)
        return False

    def _send_away(self, models: Iterable[Hosted]) -> list[_Leaving]:
        """From now on nobody finds these; to be unloaded once the lock is free again."""
        leaving = [(each, each.num_bytes, each.take()) for each in models]
        self._leaving += sum(num_bytes for _, num_bytes, _ in leaving)
        return leaving

    def _unload(self, leaving: list[_Leaving]) -> None:
        """Free the memory of these, one by one; the list is empty then, so that nobody holds them."""
        while leaving:
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
