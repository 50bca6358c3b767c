"""A route that generates, for pipelines too: who answers is decided here, and how is what it is for any model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from offramp.collaborate.cascade.cascade import sample_params, with_logprobs, written
from offramp.collaborate.cascade.scores import SCORES, need
from offramp.collaborate.router.embed import embed, pages_needed
from offramp.collaborate.router.kind import Embeddings
from offramp.core import Ids
from offramp.engine.engine import Engine
from offramp.errors import OfframpError, QueueFullError
from offramp.model.executor import LayerExecutor
from offramp.params import refused
from offramp.serve.asked import Asked
from offramp.serve.errors import UnavailableError
from offramp.serve.generation import Generation, Piped
from offramp.serve.gone import WatchClient
from offramp.serve.hosted import Live
from offramp.serve.kept import Kept
from offramp.serve.pipelines import Pipeline, Pipelines, facts_of
from offramp.serve.relay import RelayStream
from offramp.serve.served import Served
from offramp.serve.site import Site, caller_of
from offramp.serve.stream import EventStream

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
    """One route, whose local path is that of endpoints below their /v1."""

    def __init__(self, site: Site, generation: Generation, pipelines: Pipelines, path: str) -> None:
        self._site = site
        self._generation = generation
        self._pipelines = pipelines
        self._path = path

    async def answer(self, request: Request) -> Response:
        """As `Generation.answer`."""
        body = await self._site.body(request)
        values = await self._site.values(body)
        pipeline = self._pipelines.find(values.get("model"))
        if pipeline is None:
            return await self._generation.answer(_replayed(request, body))
        try:
            if pipeline.router is None:
                response = await self._cascade(request, values, pipeline)
            else:
                response = await self._route(request, values, pipeline)
        except UnavailableError:
            pipeline.failures += 1
            raise
        return response

    async def _route(self, request: Request, values: Mapping[str, object], pipeline: Pipeline) -> Response:
        asking = _for_model(request, values, pipeline.spec.little)
        async with self._generation.reading(asking) as (asked, live):
            pipeline.check_fits(live.served.loaded)
            score = await self._routing_score(_only_prompt(asked), live, pipeline)
        wants_big = pipeline.rule.calls_big(score)
        pipeline.decided(wants_big)
        big, reason = self._may_call(pipeline) if wants_big else (False, None)
        if big:
            return await self._big(request, values, pipeline, score, None)
        facts = facts_of(pipeline, big=False, score=score, reason=reason)
        again = _for_model(request, values, pipeline.spec.little)
        return self._sent(await self._generation.answer_for(Piped(pipeline.name, facts), again), pipeline, facts)

    async def _cascade(self, request: Request, values: Mapping[str, object], pipeline: Pipeline) -> Response:
        little = await self._little(request, values, pipeline)
        wants_big = little.uncovered is not None or pipeline.rule.calls_big(little.score)
        pipeline.decided(wants_big)
        big, reason = self._may_call(pipeline) if wants_big else (False, None)
        if big:
            return await self._big(request, values, pipeline, little.score, little.uncovered)
        facts = facts_of(pipeline, big=False, score=little.score, reason=reason)
        return self._sent(await self._told(request, little, Piped(pipeline.name, facts)), pipeline, facts)

    def _may_call(self, pipeline: Pipeline) -> tuple[bool, str | None]:
        """Whether the big model can be asked, and why not. Raises QueueFullError where a promise hangs on it."""
        remote = pipeline.remote
        if remote is None or remote.budget.take():
            return True, None
        if pipeline.rule.risk is not None:
            raise QueueFullError(
                f"{BUDGET}: {pipeline.name} can't keep its risk of {pipeline.rule.risk:g} without {remote.name}",
                hint=f"try again later, or ask for {pipeline.spec.little}",
                retry_after_seconds=remote.budget.wait_seconds,
            )
        return False, BUDGET

    async def _routing_score(self, tokens: Ids, live: Live, pipeline: Pipeline) -> float:
        """By what the little model makes of the prompt, between two of its steps."""
        pack = pipeline.router
        assert pack is not None
        seconds = self._site.settings.request_seconds
        executor = live.served.loaded.executor
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = await live.worker.between_steps(
                        lambda engine: _embedded(engine, executor, tokens, pack.config.depth)
                    )
                    if found is not None:
                        return float(pack.router.scores(found)[0])
                    await asyncio.sleep(PAGE_SECONDS)
        except TimeoutError as error:
            hint = "try again later"
            raise QueueFullError(f"no K/V pages were free in {seconds:g} s to look at the prompt", hint=hint) from error

    async def _little(self, request: Request, values: Mapping[str, object], pipeline: Pipeline) -> LittleAnswer:
        """The little model's whole answer."""
        asking = _for_model(request, values, pipeline.spec.little)
        async with self._generation.reading(asking) as (asked, live):
            pipeline.check_fits(live.served.loaded)
            _only_prompt(asked)
            kept = await self._kept(asking, asked, live)
            score = await self._cascade_score(asking, asked, live, kept, pipeline)
        calibration, risk = pipeline.calibration, pipeline.rule.risk
        uncovered = None if calibration is None or risk is None else calibration.why_not(asked.params)
        return LittleAnswer(asked, live.served, kept, score, uncovered)

    async def _cascade_score(self, request: Request, asked: Asked, live: Live, kept: Kept, pipeline: Pipeline) -> float:
        """Of several choices the neediest counts."""
        assert pipeline.score is not None
        samples: list[str] = []
        if count := SCORES[pipeline.score].num_samples:
            sampling = replace(asked, params=sample_params(asked.params, count))
            told = await self._kept(request, sampling, live)
            samples = [choice.text for choice in told.choices]
        return max(need(pipeline.score, written(choice, samples)) for choice in kept.choices)

    async def _kept(self, request: Request, asked: Asked, live: Live) -> Kept:
        """A run to its end, with the log-probabilities that a score reads."""
        caller = caller_of(request.scope)
        whole = replace(asked, params=with_logprobs(asked.params), stream=False)
        run = await self._generation.open(whole, live, caller, caller.trace.beside())
        batches = []
        try:
            async with WatchClient(request.receive, run.close) as watch:
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

    async def _told(self, request: Request, little: LittleAnswer, piped: Piped) -> Response:
        """The little model's answer, whole or as a stream."""
        caller, kept = caller_of(request.scope), little.kept
        answering = self._generation.answering(piped.marked(little.asked), little.served, caller)
        if little.asked.stream:
            stream = EventStream(kept, answering, caller.trace)
            await stream.begin(request)
            return stream
        report = kept.report()
        answer = answering.whole(kept.outputs(), report)
        caller.trace.finished(200, report, started=kept.started)
        return JSONResponse(answer)

    async def _big(
        self, request: Request, values: Mapping[str, object], pipeline: Pipeline, score: float, reason: str | None
    ) -> Response:
        facts = facts_of(pipeline, big=True, score=score, reason=reason)
        if pipeline.remote is None:
            asking = _for_model(request, values, pipeline.big_name)
            response = await self._generation.answer_for(Piped(pipeline.name, facts), asking)
            return self._sent(response, pipeline, facts)
        body = {name: value for name, value in values.items() if name != "offramp"}
        if values.get("stream") is True:
            stream = RelayStream(pipeline.remote, self._path, body, caller_of(request.scope).trace)
            await stream.begin(request)
            return self._sent(stream, pipeline, facts)
        answer = await self._relayed(request, pipeline, body)
        told = answer.get("offramp")
        answer["model"] = pipeline.name
        answer["offramp"] = {**(told if isinstance(told, dict) else {}), "pipeline": dict(facts)}
        return self._sent(JSONResponse(answer), pipeline, facts)

    async def _relayed(self, request: Request, pipeline: Pipeline, body: Mapping[str, object]) -> dict[str, object]:
        """The endpoint's whole answer, given up when the client goes."""
        assert pipeline.remote is not None
        asking = asyncio.ensure_future(pipeline.remote.answer(self._path, body))
        try:
            async with WatchClient(request.receive, asking.cancel) as watch:
                await asyncio.wait([asking])
        finally:
            asking.cancel()
        if watch.gone:
            raise ClientDisconnect
        return asking.result()

    def _sent(self, response: Response, pipeline: Pipeline, facts: Mapping[str, object]) -> Response:
        """Counted, with a header that names the model."""
        pipeline.answered[str(facts["answered_by"])] += 1
        response.headers[ANSWERED_BY] = quote(str(facts["model"]), safe="/:@")
        return response


def _embedded(engine: Engine, executor: LayerExecutor, tokens: Ids, depth: int) -> Embeddings | None:
    """[1, features] of a prompt; None while too many pages are in use."""
    needed = pages_needed(executor.config, len(tokens))
    with engine.lend_pages(needed) as pages:
        return embed(executor, tokens, (depth,), pages) if len(pages) == needed else None


def _only_prompt(asked: Asked) -> Ids:
    """Token ids of the request's one prompt."""
    if len(asked.prompts) != 1:
        raise refused("prompt", f"{len(asked.prompts)} prompts", "one prompt, where a pipeline answers")
    return np.array(asked.prompts[0].token_ids, dtype=np.int32)


def _for_model(request: Request, values: Mapping[str, object], model: str) -> Request:
    """The same request to one model."""
    body = json.dumps({**values, "model": model}, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    return _replayed(request, body)


def _replayed(request: Request, body: bytes) -> Request:
    """The request with a body that was read, perhaps changed; then what the client does."""
    waiting = [body]

    async def receive() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await request.receive()

    return Request(request.scope, receive)
