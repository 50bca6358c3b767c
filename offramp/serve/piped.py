"""A route that generates, for pipelines too: who answers is decided here, and how is what it is for any model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from offramp.collaborate.cascade.cascade import neediest, sample_params, with_logprobs, written
from offramp.collaborate.cascade.scores import SCORES
from offramp.collaborate.pipeline.spec import BIG_LITTLE, ROUTE
from offramp.collaborate.router.embed import embed, pages_needed
from offramp.collaborate.router.kind import Embeddings
from offramp.core import Ids
from offramp.engine.engine import Engine
from offramp.errors import OfframpError, QueueFullError
from offramp.llm.serving import EARLY
from offramp.model.executor import LayerExecutor
from offramp.serve.asked import Asked
from offramp.serve.errors import UnavailableError
from offramp.serve.generation import Generation
from offramp.serve.gone import WatchClient
from offramp.serve.hosted import Live
from offramp.serve.kept import Kept
from offramp.serve.pair import pair_facts, with_mode
from offramp.serve.piped_request import PipedRequest, only_prompt, replayed
from offramp.serve.pipelines import Pipeline, Pipelines
from offramp.serve.relay import RelayStream
from offramp.serve.remote import Remote
from offramp.serve.remote_answer import passed_on
from offramp.serve.served import Served
from offramp.serve.site import Site
from offramp.serve.stream import EventStream
from offramp.serve.time_left import TimeLeft

ANSWERED_BY = "x-offramp-answered-by"
"""The header that names the model that answered, percent-encoded."""
BUDGET = "the budget of calls is spent"
PAGE_SECONDS = 0.02
"""Between two looks for free pages to embed a prompt on."""


@dataclass(frozen=True, slots=True)
class LittleAnswer:
    """What the little model wrote, and how it goes out."""

    asked: Asked
    served: Served
    kept: Kept
    score: float
    uncovered: str | None  # why a certificate does not hold for it


class PipedRoute:
    """One route, whose local path is that of endpoints below their /v1.

    `chat`: its prompts come through a chat template.
    """

    def __init__(self, site: Site, generation: Generation, pipelines: Pipelines, path: str, *, chat: bool) -> None:
        self._site = site
        self._generation = generation
        self._pipelines = pipelines
        self._path = path
        self._chat = chat

    async def answer(self, request: Request) -> Response:
        """As `Generation.answer`."""
        body = await self._site.body(request)
        values = await self._site.values(body)
        pipeline = self._pipelines.find(values.get("model"))
        if pipeline is None:
            return await self._generation.answer(replayed(request, body))
        piped = PipedRequest(request, values, pipeline, time.perf_counter())
        try:
            if pipeline.spec.policy == BIG_LITTLE:
                return await self._pair(piped)
            return await (self._route(piped) if pipeline.spec.policy == ROUTE else self._cascade(piped))
        except UnavailableError:
            pipeline.failed()
            raise

    async def _pair(self, piped: PipedRequest) -> Response:
        pipeline = piped.pipeline
        asking = replace(piped, values=with_mode(piped.values, pipeline.spec))
        facts = await self._pair_facts(asking)
        again = asking.for_model(pipeline.big_name)
        piped.count(facts)
        return _named(await self._generation.answer_for(piped.answered(facts), again), facts)

    async def _pair_facts(self, piped: PipedRequest) -> Mapping[str, object]:
        async with self._generation.reading(piped.for_model(piped.pipeline.big_name)) as (asked, _):
            return pair_facts(piped.pipeline.spec, asked.kept)

    async def _route(self, piped: PipedRequest) -> Response:
        pipeline = piped.pipeline
        score, uncovered = await self._routing_score(piped)
        wants_big = pipeline.calls_big(score)
        if uncovered is None:
            pipeline.decided(wants_big)
        big, reason = self._decided(pipeline, wants_big or uncovered is not None)
        if big:
            return await self._big(piped, score, uncovered)
        facts = piped.facts(big=False, score=score, reason=reason)
        again = piped.for_model(pipeline.spec.little)
        return _named(await self._generation.answer_for(piped.answered(facts), again), facts)

    async def _cascade(self, piped: PipedRequest) -> Response:
        pipeline, little = piped.pipeline, await self._little(piped)
        score, uncovered = little.score, little.uncovered
        wants_big = pipeline.calls_big(score)
        if uncovered is None:
            pipeline.decided(wants_big)
        big, reason = self._decided(pipeline, wants_big or uncovered is not None)
        if big:
            del little  # it holds its model's memory, which the big one may need
            return await self._big(piped, score, uncovered)
        facts = piped.facts(big=False, score=score, reason=reason)
        return _named(await self._told(piped, little, facts), facts)

    def _decided(self, pipeline: Pipeline, wants_big: bool) -> tuple[bool, str | None]:
        """Whether the big model is asked, and why not although it is wanted.

        Raises QueueFullError where a promise hangs on it.
        """
        if not wants_big:
            return False, None
        remote = pipeline.remote
        if remote is None or remote.budget.take():
            return True, None
        if pipeline.risk is not None:
            raise QueueFullError(
                f"{BUDGET}: {pipeline.name} can't keep its risk of {pipeline.risk:g} without {remote.name}",
                hint=f"try again later, or ask for {pipeline.spec.little}",
                retry_after_seconds=remote.budget.wait_seconds,
            )
        return False, BUDGET

    async def _routing_score(self, piped: PipedRequest) -> tuple[float, str | None]:
        """By what the little model makes of the prompt, and why a certificate does not hold for its answer.

        Nothing of that model is held when this returns.
        """
        pipeline = piped.pipeline
        request = piped.for_model(pipeline.spec.little)
        async with self._generation.reading(request) as (asked, live):
            pipeline.check_fits(live.served.loaded)
            tokens = only_prompt(asked)
            async with WatchClient(request.receive, lambda: None) as watch:
                score = await self._looked_at(tokens, live, pipeline, watch)
            return score, _uncovered(asked, pipeline, chat=self._chat)

    async def _looked_at(self, tokens: Ids, live: Live, pipeline: Pipeline, watch: WatchClient) -> float:
        """The score of a prompt, made between two of the model's steps, while the client is there."""
        pack = pipeline.router
        assert pack is not None
        seconds = self._site.settings.request_seconds
        executor = live.served.loaded.executor
        try:
            async with asyncio.timeout(seconds):
                while not watch.gone:
                    found = await live.worker.between_steps(
                        lambda engine: _embedded(engine, executor, tokens, pack.config.depth)
                    )
                    if found is not None:
                        return float(pack.router.scores(found)[0])
                    await asyncio.sleep(PAGE_SECONDS)
                raise ClientDisconnect
        except TimeoutError as error:
            hint = "try again later"
            raise QueueFullError(f"no K/V pages were free in {seconds:g} s to look at the prompt", hint=hint) from error

    async def _little(self, piped: PipedRequest) -> LittleAnswer:
        """The little model's whole answer."""
        pipeline = piped.pipeline
        asking = replace(piped, request=piped.for_model(pipeline.spec.little))
        async with self._generation.reading(asking.request) as (asked, live):
            pipeline.check_fits(live.served.loaded)
            only_prompt(asked)
            kept = await self._kept(asking, asked, live)
            score = await self._cascade_score(asking, asked, live, kept)
        return LittleAnswer(asked, live.served, kept, score, _uncovered(asked, pipeline, chat=self._chat))

    async def _cascade_score(self, piped: PipedRequest, asked: Asked, live: Live, kept: Kept) -> float:
        """Of several choices the neediest counts."""
        kind = piped.pipeline.score
        assert kind is not None
        samples: list[str] = []
        if count := SCORES[kind].num_samples:
            sampling = replace(asked, params=sample_params(asked.params, count))
            told = await self._kept(piped, sampling, live)
            samples = [choice.text for choice in told.choices]
        return neediest(kind, (written(choice, samples) for choice in kept.choices), piped.pipeline.scorer)

    async def _kept(self, piped: PipedRequest, asked: Asked, live: Live) -> Kept:
        """A run to its end, with the log-probabilities that a score reads."""
        caller = piped.caller
        whole = replace(asked, params=with_logprobs(asked.params), stream=False)
        spent = time.perf_counter() - piped.began
        run = await self._generation.open(whole, live, caller, caller.trace.beside(), spent=spent)
        batches = []
        try:
            async with WatchClient(piped.request.receive, run.close) as watch:
                try:
                    async for batch in run.batches():
                        batches.append(batch)  # noqa: PERF401
                except OfframpError:
                    if not watch.gone:
                        raise
            if watch.gone:
                raise ClientDisconnect
        finally:
            run.close()
        return Kept(run, batches, with_logprobs=asked.params.logprobs is not None)

    async def _told(self, piped: PipedRequest, little: LittleAnswer, facts: Mapping[str, object]) -> Response:
        """The little model's answer, whole or as a stream."""
        caller, kept = piped.caller, little.kept
        answering = self._generation.answering(piped.answered(facts).marked(little.asked), little.served, caller)
        if little.asked.stream:
            stream = EventStream(kept, answering, caller.trace)
            await stream.begin(piped.request)
            return stream
        report = kept.report()
        answer = answering.whole(kept.outputs(), report)
        caller.trace.finished(200, report, started=kept.started)
        return JSONResponse(answer)

    async def _big(self, piped: PipedRequest, score: float, reason: str | None) -> Response:
        pipeline = piped.pipeline
        facts = piped.facts(big=True, score=score, reason=reason)
        if pipeline.remote is None:
            asking = piped.for_model(pipeline.big_name)
            if pipeline.calibration is not None or pipeline.risk is not None:
                async with self._site.models.held(pipeline.big_name, piped.request.receive) as live:
                    pipeline.check_fits_big(live.served.loaded)
            response = await self._generation.answer_for(piped.answered(facts), asking)
            return _named(response, facts)
        body = {name: value for name, value in piped.values.items() if name != "offramp"}
        if piped.values.get("stream") is True:
            trace = piped.caller.trace
            left = self._time_left(piped)
            stream = RelayStream(pipeline.remote, self._path, body, trace, left, broken=pipeline.failed)
            await stream.begin(piped.request)
            return _named(stream, facts)
        answer = await self._relayed(piped, pipeline.remote, body)
        told = answer.pop("offramp", None)
        answer["model"] = pipeline.name
        if piped.wants_report:
            answer["offramp"] = {**(told if isinstance(told, dict) else {}), "pipeline": dict(facts)}
        return _named(passed_on(answer), facts)

    async def _relayed(self, piped: PipedRequest, remote: Remote, body: Mapping[str, object]) -> dict[str, object]:
        """The endpoint's whole answer, given up when the client goes or the request's time is up."""
        asking = asyncio.ensure_future(remote.answer(self._path, body))
        try:
            async with WatchClient(piped.request.receive, asking.cancel) as watch, self._time_left(piped).bound():
                await asyncio.wait([asking])
        finally:
            asking.cancel()
        if watch.gone:
            if not asking.cancelled():
                asking.exception()  # nobody is there to be told
            raise ClientDisconnect
        return asking.result()

    def _time_left(self, piped: PipedRequest) -> TimeLeft:
        return TimeLeft(self._site.settings.request_seconds, piped.began)


def _named(response: Response, facts: Mapping[str, object]) -> Response:
    """With a header that names the model."""
    response.headers[ANSWERED_BY] = quote(str(facts["model"]), safe="/:@")
    return response


def _embedded(engine: Engine, executor: LayerExecutor, tokens: Ids, depth: int) -> Embeddings | None:
    """[1, features] of a prompt; None while too many pages are in use."""
    needed = pages_needed(executor.config, len(tokens))
    with engine.lend_pages(needed, least=needed) as pages:
        return embed(executor, tokens, (depth,), pages) if len(pages) else None


def _uncovered(asked: Asked, pipeline: Pipeline, *, chat: bool) -> str | None:
    """Why the pipeline's certificate, if it has one, does not hold for the little model's answer."""
    if pipeline.risk is None:
        return None
    if asked.kept.mode in EARLY:
        return f"mode {asked.kept.mode} was not part of the calibration"
    if asked.grammar is not None and asked.params.structured_outputs is None:
        return "calls of tools by a grammar were not part of the calibration"
    return pipeline.why_not(asked.params, chat=chat)
