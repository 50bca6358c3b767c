"""POST routes that generate: read the request, run it, write the answer, whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from offramp.errors import OfframpError
from offramp.params import refused
from offramp.serve.answering import Answering, MakeAnswering
from offramp.serve.asked import Asked
from offramp.serve.errors import failure_of, internal_failure
from offramp.serve.gone import WatchClient
from offramp.serve.hosted import Live
from offramp.serve.request_metrics import CLIENT_CLOSED, RequestTrace
from offramp.serve.running import Run
from offramp.serve.served import Served
from offramp.serve.site import Caller, Site, caller_of
from offramp.serve.stream import EventStream

Ask = Callable[[Mapping[str, object], Served], Asked]


@dataclass(frozen=True, slots=True)
class Piped:
    """A request that came for a pipeline, and was handed to one of its models."""

    name: str  # of the pipeline
    facts: Mapping[str, object]  # that the answer tells

    def marked(self, asked: Asked) -> Asked:
        return replace(asked, model=self.name, pipeline=self.facts)


class Generation:
    """One route: `ask` understands its bodies, what `make_answering` makes writes its answers."""

    def __init__(self, site: Site, ask: Ask, make_answering: MakeAnswering) -> None:
        self._site = site
        self._ask = ask
        self._make_answering = make_answering

    async def answer(self, request: Request) -> Response:
        """Raises OfframpError, and ClientDisconnect when nobody waits for an answer any more."""
        return await self.answer_for(None, request)

    async def answer_for(self, piped: Piped | None, request: Request) -> Response:
        """The same, for a pipeline that the request was meant for."""
        caller = caller_of(request.scope)
        async with self.reading(request, piped) as (asked, live):
            answering = self.answering(asked, live.served, caller)
            run = await self.open(asked, live, caller, caller.trace)
        del live  # its worker knows of the run, and that keeps the model in memory
        try:
            if asked.stream:
                stream = EventStream(run, answering, caller.trace)
                await stream.begin(request)
                return stream
            return await self._whole(request, run, answering)
        except BaseException as error:
            run.close()
            if isinstance(error, OfframpError):
                caller.trace.failed(failure_of(error))
            caller.trace.finished(_status(error), run.report(), started=run.started)
            raise

    @asynccontextmanager
    async def reading(self, request: Request, piped: Piped | None = None) -> AsyncIterator[tuple[Asked, Live]]:
        """What is asked, and the model that it is for, which stays in memory meanwhile."""
        async with self._site.read(request, self._ask) as (asked, live):
            yield asked if piped is None else piped.marked(asked), live

    def answering(self, asked: Asked, served: Served, caller: Caller) -> Answering:
        """What writes the answer."""
        return self._make_answering(asked, served, caller.request_id)

    async def open(self, asked: Asked, live: Live, caller: Caller, trace: RequestTrace) -> Run:
        """Begin it. Raises what the worker raises."""
        settings = self._site.settings
        most = settings.max_queued + live.served.serving.max_num_seqs
        if len(asked.prompts) > most:  # they would find no room, however often they came
            raise refused("prompt", f"{len(asked.prompts)} prompts", f"at most {most} prompts on this server")
        return await Run.open(
            live.worker,
            live.served,
            asked,
            request_id=caller.request_id,
            client=caller.client,
            salt=caller.salt,
            seconds=settings.request_seconds,
            trace=trace,
        )

    async def _whole(self, request: Request, run: Run, answering: Answering) -> Response:
        async with WatchClient(request.receive, run.close) as watch:
            try:
                async for _ in run.batches():
                    pass
            except OfframpError:
                if not watch.gone:
                    raise
        if watch.gone:
            raise ClientDisconnect
        report = run.report()
        answer = answering.whole(run.outputs(), report)
        caller_of(request.scope).trace.finished(200, report, started=run.started)
        return JSONResponse(answer)


def _status(error: BaseException) -> int:
    """What the log gives a request that ended so."""
    if isinstance(error, OfframpError):
        return failure_of(error).status
    gone = isinstance(error, ClientDisconnect) or not isinstance(error, Exception)
    return CLIENT_CLOSED if gone else internal_failure().status
