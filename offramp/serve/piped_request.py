"""A request that names a pipeline, and the same request to one of its models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from starlette.requests import Request
from starlette.types import Message

from offramp.core import Ids
from offramp.params import refused
from offramp.serve.asked import Asked
from offramp.serve.generation import Piped
from offramp.serve.pair import as_written
from offramp.serve.pipelines import Pipeline, facts_of
from offramp.serve.site import Caller, caller_of


@dataclass(frozen=True, slots=True)
class PipedRequest:
    """A request that names a pipeline."""

    request: Request
    values: Mapping[str, object]  # of its body
    pipeline: Pipeline
    began: float  # by `time.perf_counter`

    @property
    def caller(self) -> Caller:
        return caller_of(self.request.scope)

    @property
    def wants_report(self) -> bool:
        """Of a request that was found good: whether the answer is to tell of itself."""
        own = self.values.get("offramp")
        return not (isinstance(own, Mapping) and own.get("report") == "none")

    def for_model(self, model: str) -> Request:
        """The same request to one model."""
        body = json.dumps({**self.values, "model": model}, ensure_ascii=False, allow_nan=False)
        return replayed(self.request, body.encode("utf-8", "surrogatepass"))

    def facts(self, *, big: bool, score: float, reason: str | None) -> Mapping[str, object]:
        """What is told of an answer of one of the models, which counts once it is whole."""
        facts = facts_of(self.pipeline, big=big, score=score, reason=reason)
        self.count(facts)
        return facts

    def count(self, facts: Mapping[str, object]) -> None:
        """Count the answer by who gave it, if there comes to be one."""
        self.caller.trace.when_answered(lambda report: self.pipeline.count(as_written(facts, report)))

    def answered(self, facts: Mapping[str, object]) -> Piped:
        """What the answer of one of the models tells."""
        return Piped(self.pipeline.name, facts, self.began)


def only_prompt(asked: Asked) -> Ids:
    """Token ids of the request's one prompt."""
    if len(asked.prompts) != 1:
        raise refused("prompt", f"{len(asked.prompts)} prompts", "one prompt, where a pipeline answers")
    return np.array(asked.prompts[0].token_ids, dtype=np.int32)


def replayed(request: Request, body: bytes) -> Request:
    """The request with a body that was read, perhaps changed; then what the client does."""
    waiting = [body]

    async def receive() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await request.receive()

    return Request(request.scope, receive)
