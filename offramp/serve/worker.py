"""The server's one engine thread, and its edge to asyncio: submit a request, read its ticket."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from offramp.core import Request
from offramp.draft import OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.errors import ResourceError
from offramp.llm.cost_refresh import CostRefresh
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_engine, ready_costs
from offramp.llm.serving import Serving
from offramp.params import check_int
from offramp.serve.delivery import Delivery, call_in
from offramp.serve.dispatch import Dispatcher, Turn
from offramp.serve.errands import Errands
from offramp.serve.ledger import Ledger, engine_failed
from offramp.serve.payoff import PayoffWatch
from offramp.serve.snapshot import WorkerStatistics, snapshot
from offramp.serve.ticket import Mailbox, Submission, Ticket

MOST_QUEUED = 1 << 20

QUIET_SECONDS = 1.0
"""Without a request before the thread looks after the engine."""

log = logging.getLogger("offramp")

T = TypeVar("T")

Action = Callable[[Dispatcher], object]
"""What others ask of the engine's thread, done between steps."""


class Worker:
    """Runs an engine in a thread of its own for readers in any number of event loops.

    `start` it, and `stop` it in the end: its thread keeps the process alive. `clock` counts seconds as
    `time.perf_counter` does. Whoever wants something of the engine leaves an action in the inbox; leaving one never
    blocks, so the garbage collector may do it as well.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        serving: Serving,
        *,
        max_queued: int = 128,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_int("max_queued", max_queued, 0, MOST_QUEUED)
        self._loaded = loaded
        self._clock = clock
        self._costs = MeasuredCosts()
        self._engine = make_engine(loaded, serving, self._costs, waiting=self._num_waiting)
        if serving.default_draft != OFF:
            ready_costs(self._costs, loaded, self._engine)
        self._refresh = CostRefresh(self._costs, loaded, clock=clock)
        self._inbox: SimpleQueue[Action] = SimpleQueue()
        self._ledger = Ledger(max_queued=max_queued, max_num_seqs=serving.max_num_seqs)
        self._dispatcher = Dispatcher(
            self._engine, max_num_seqs=serving.max_num_seqs, prepare=self._prepare, clock=clock
        )
        self._delivery = Delivery()
        self._errands = Errands()
        self._payoff = PayoffWatch(goodput=serving.draft_length == "goodput")
        self._snapshot = snapshot(self._engine.statistics, 0)
        self._halted = False
        self._thread = threading.Thread(target=self._run, name="offramp-engine", daemon=False)

    @property
    def statistics(self) -> WorkerStatistics:
        """A copy as of some moment between the latest steps. Cheap, and safe from any thread."""
        return replace(self._snapshot, num_queued=self._ledger.num_waiting)

    @property
    def num_open(self) -> int:
        """Requests that were let in and have not ended."""
        return self._ledger.num_open

    @property
    def failure(self) -> BaseException | None:
        """The internal error that ended the engine's thread; from then on `submit` raises EngineFailedError."""
        return self._ledger.failure

    def _num_waiting(self) -> int:
        """Requests that wait for the engine; it asks while it steps."""
        return self._ledger.num_waiting

    def start(self) -> None:
        """Start the engine's thread; once."""
        self._thread.start()

    async def submit(
        self,
        request: Request,
        *,
        client: str = "",
        whole: bool = False,
        queue_seconds: float | None = None,
        total_seconds: float | None = None,
    ) -> Ticket:
        """Queue a request; clients take turns. It ends with "abort" when it waits or takes longer than it may.

        `whole`: nobody looks at the tokens before all are there, so they may come in few, large batches. Raises what
        `Engine.add_request` raises, QueueFullError, ServerStoppingError and EngineFailedError.
        """
        assert self._thread.ident is not None, "start the worker first"
        assert request.drafting.drafter is not None, "a request must name its drafter, or off"
        self._ledger.check()
        self._engine.check_request(request)
        now = self._clock()
        submission = Submission(
            request=request,
            mailbox=Mailbox(asyncio.get_running_loop(), request),
            client=client,
            whole=whole,
            submitted=now,
            queue_due=math.inf if queue_seconds is None else now + queue_seconds,
            total_due=math.inf if total_seconds is None else now + total_seconds,
        )
        self._ledger.let_in(submission, partial(_leave, self._inbox, Dispatcher.submit), now)
        return Ticket(submission, partial(_leave, self._inbox, Dispatcher.cancel))

    async def between_steps(self, act: Callable[[Engine], T]) -> T:
        """What `act` makes of the engine, in its thread and while no step runs. Raises what it raises, and as `submit`.

        The others wait meanwhile.
        """
        self._ledger.check()
        return await self._errands.send(lambda: act(self._engine), self._inbox)

    async def drain(self, deadline_seconds: float) -> int:
        """Refuse new requests, let the others end until the deadline, then abort them; returns how many those were."""
        self._ledger.stop()
        emptied = asyncio.Event()
        self._ledger.when_empty(partial(call_in, asyncio.get_running_loop(), emptied.set))
        try:
            await asyncio.wait_for(emptied.wait(), deadline_seconds)
        except TimeoutError:
            num_aborted: list[int] = []
            self._inbox.put(lambda dispatcher: num_aborted.append(dispatcher.cancel_all()))
            await emptied.wait()
            return sum(num_aborted)
        return 0

    def stop(self) -> None:
        """Abort everything and wait for the thread to end: at most one step. May be called again."""
        self._ledger.stop()
        self._halted = True
        self._inbox.put(Dispatcher.cancel_all)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not (self._halted and self._ledger.empty):
                self._act()
                self._publish(self._dispatcher.admit())
                self._publish(self._dispatcher.step())
        except BaseException as failure:  # whatever it is, no reader may wait for ever
            self._fail(failure)
        finally:
            self._errands.close()

    def _act(self) -> None:
        """Do what others left to do; with nothing else to do, wait for it."""
        if not self._dispatcher.has_work:
            self._wait()(self._dispatcher)
        while True:
            try:
                action = self._inbox.get_nowait()
            except Empty:
                return
            action(self._dispatcher)

    def _wait(self) -> Action:
        """The next action. A quiet moment is used to look after the engine."""
        timeout: float | None = QUIET_SECONDS
        while True:
            try:
                return self._inbox.get(timeout=timeout)
            except Empty:
                pass
            self._engine.check_integrity()
            timeout = self._refresh_costs()

    def _refresh_costs(self) -> float | None:
        """Measure costs that are in doubt, at most once a minute; seconds until that may be tried (again)."""
        self._refresh.attempt(self._engine)
        wait = self._refresh.wait
        return None if wait is None else max(QUIET_SECONDS, wait)

    def _publish(self, turn: Turn) -> None:
        """Tell of a turn: first the counters, so that whoever reads its last event finds its pages back."""
        now = self._clock()
        self._ledger.note(num_left=turn.num_left, num_held=self._dispatcher.num_held, ended=turn.ended, now=now)
        self._snapshot = snapshot(self._engine.statistics, 0)
        self._payoff.look(self._snapshot)
        for submission in self._delivery.deliver(turn.news, now, crowded=self._dispatcher.num_held > 1):
            self._dispatcher.cancel(submission)
        self._ledger.settle()

    def _fail(self, failure: BaseException) -> None:
        log.error("the engine stopped after an internal error", exc_info=failure)
        error, now = engine_failed(failure), self._clock()
        self._delivery.forget()
        for submission in self._ledger.fail(failure):
            call_in(submission.mailbox.loop, submission.mailbox.fail, error, now)
        self._ledger.settle()

    def _prepare(self, request: Request) -> bool:
        """The first request that asks for drafts may need costs measured: the others then pause for about 2 s, once.

        False while too many pages are in use for that.
        """
        try:
            if request.drafting.drafter != OFF:
                ready_costs(self._costs, self._loaded, self._engine)
        except ResourceError:
            if not self._engine.has_work:
                raise
            return False
        return True


def _leave(inbox: SimpleQueue[Action], act: Callable[[Dispatcher, Submission], object], submission: Submission) -> None:
    inbox.put(lambda dispatcher: act(dispatcher, submission))
