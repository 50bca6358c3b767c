"""Run requests through an engine and gather what it told, for tests that compare one way of running with another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from offramp.core import FinishReason, Request, SequenceKey, TokenEvent, TokenLogprobs
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.model.executor import LayerExecutor

MAX_STEPS = 20_000


@dataclass(slots=True)
class Told:
    """Everything one sequence's events said."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    text_stopped: bool = False
    error: OfframpError | None = None
    num_cached_tokens: int = 0
    block_lens: list[int] = field(default_factory=list)
    exit_layers: list[int] = field(default_factory=list)  # of each token, when the request has an exit policy
    exact_kv: bool = True

    def hear(self, event: TokenEvent) -> None:
        assert self.finish_reason is None, "told after the end"
        assert event.token_ids or event.finish_reason, "an event that says nothing"
        self.token_ids += event.token_ids
        self.block_lens.append(len(event.token_ids))
        self.logprobs += event.logprobs or ()
        if event.exit_layer is not None:
            self.exit_layers += [event.exit_layer] * len(event.token_ids)
        assert event.exact_kv <= self.exact_kv, "K/V became exact again"
        self.exact_kv = event.exact_kv
        if event.prompt_logprobs is not None:
            assert self.prompt_logprobs is None, "prompt logprobs come once"
            self.prompt_logprobs = event.prompt_logprobs
        self.finish_reason = event.finish_reason
        self.text_stopped = event.text_stopped
        self.error = event.error
        self.num_cached_tokens = event.num_cached_tokens


def drain(engine: Engine, told: dict[SequenceKey, Told] | None = None) -> dict[SequenceKey, Told]:
    """Step until nothing is left, checking integrity after each step; adds to `told`."""
    told = {} if told is None else told
    for _ in range(MAX_STEPS):
        if not engine.has_work:
            break
        hear(engine, told)
    assert not engine.has_work, f"still busy after {MAX_STEPS} steps"
    assert engine.statistics.num_used_pages == 0, "pages left behind"
    return told


def hear(engine: Engine, told: dict[SequenceKey, Told]) -> None:
    """One step."""
    for event in engine.step():
        told.setdefault((event.request_id, event.choice), Told()).hear(event)
    engine.check_integrity()


def run(engine: Engine, requests: Iterable[Request]) -> dict[SequenceKey, Told]:
    """All requests at once."""
    for request in requests:
        engine.add_request(request)
    return drain(engine)


def run_plain(executor: LayerExecutor, request: Request, *, max_context: int) -> dict[SequenceKey, Told]:
    """The request alone in a fresh engine: no drafts, no exits, no prefix cache, the whole prompt in one chunk."""
    engine = Engine(executor, max_context=max_context, max_num_batched_tokens=65536, prefix_cache=False)
    return run(engine, [request])
