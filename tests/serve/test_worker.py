"""Readers in event loops share one engine thread: they get what `LLM` says, and none holds another up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from offramp import LLM, InvalidRequestError, RequestOutput, SamplingParams
from offramp.engine.engine import Engine
from offramp.errors import (
    ContextLengthError,
)
from offramp.llm import LoadedModel
from offramp.llm.serving import Serving
from offramp.params import RequestOptions
from offramp.serve.dispatch import Dispatcher, Turn
from offramp.serve.worker import Worker
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import scripted_model
from tests.serve.reading import VOCAB, WELL, answer, ask, in_loop, read, solo, tokens, working

CASES: list[tuple[str, SamplingParams]] = [
    ("hello world", SamplingParams(temperature=0, seed=1, max_tokens=20)),
    (
        "hello world",
        SamplingParams(temperature=0, seed=1, max_tokens=20, ignore_eos=True, logprobs=2, prompt_logprobs=1),
    ),
    ("a b a b a b a b", SamplingParams(temperature=0, seed=1, max_tokens=30, ignore_eos=True)),
    ("12 12 12 12 12", SamplingParams(temperature=0.8, seed=5, n=3, max_tokens=15, ignore_eos=True)),
    ("12 12 12 12 12", SamplingParams(temperature=0.8, seed=6, max_tokens=15, stop=("e", "a", "1"))),
    ("x" * 90, SamplingParams(temperature=1.1, seed=7, top_k=9, max_tokens=12, ignore_eos=True)),
    ("x" * 90 + "y", SamplingParams(temperature=0, seed=1, repetition_penalty=1.3, max_tokens=12, min_tokens=3)),
]


def said(output: RequestOutput) -> object:
    """Everything but names and times."""
    return output.prompt_token_ids, output.prompt_logprobs, output.outputs


@pytest.mark.parametrize("draft", ["off", "ngram"])
@pytest.mark.usefixtures("quick_costs")
def test_equal_to_generate_several_at_once(toy_model: LoadedModel, draft: str) -> None:
    serving = Serving(draft=draft, max_num_batched_tokens=32, draft_length="fixed")
    plain = LLM.from_loaded(toy_model, Serving(draft="off"))
    expected = [said(plain.generate(prompt, params)[0]) for prompt, params in CASES]

    @in_loop
    async def serve() -> None:
        async with working(toy_model, serving=serving) as worker:
            for _ in range(2):  # the second time from cached prefixes
                tickets = [await worker.submit(ask(toy_model, *case, serving=serving)) for case in CASES]
                found = await asyncio.gather(*(answer(toy_model, ticket) for ticket in tickets))
                assert [said(output) for output in found] == expected
            assert (worker.statistics.num_draft_tokens > 0) == (draft != "off")

    serve()


@pytest.mark.usefixtures("quick_costs")
@in_loop
async def test_one_request_may_draft_where_the_others_do_not(toy_model: LoadedModel) -> None:
    prompt, params = CASES[2]
    [expected] = LLM.from_loaded(toy_model, Serving(draft="off")).generate(prompt, params)
    async with working(toy_model) as worker:
        drafted = ask(toy_model, prompt, params, options=RequestOptions(draft="ngram"))
        tickets = [await worker.submit(ask(toy_model, prompt, params)), await worker.submit(drafted)]
        for ticket in tickets:
            assert said(await answer(toy_model, ticket)) == said(expected)


@in_loop
async def test_what_can_never_be_served_is_refused_at_once(gate: Gate) -> None:
    model = gated_model(WELL, gate, num_pages=4)
    async with working(model, gate) as worker:
        gate.close()
        ticket = await worker.submit(ask(model, [7], request_id="taken"))
        await gate.reached()  # the engine is busy and stays so
        refused: list[tuple[type[InvalidRequestError], list[int], str, str]] = [
            (InvalidRequestError, [], "a", "no tokens"),
            (InvalidRequestError, [VOCAB], "a", f"token id {VOCAB}"),
            (ContextLengthError, [7] * 128, "a", "128"),
            (InvalidRequestError, [7], "taken", "running already"),
        ]
        for kind, prompt, request_id, message in refused:
            with pytest.raises(kind, match=message):
                await worker.submit(ask(model, prompt, request_id=request_id))
        assert worker.statistics.num_queued == 0
        gate.open()
        assert tokens(await read(ticket)) == solo([7])


@in_loop
async def test_a_long_prefill_starves_nobody(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(draft="off", max_num_batched_tokens=16)) as worker:
        gate.close()
        short = await worker.submit(ask(model, [7] * 3))
        await gate.turn()
        long = await worker.submit(ask(model, [9] * 200))
        await gate.turn()
        for _ in range(10):
            before = worker.statistics
            await gate.turn()
            after = worker.statistics
            assert after.num_generated_tokens == before.num_generated_tokens + 1
            assert after.num_rows == before.num_rows + 16
        gate.open()
        assert tokens(await read(short)) == solo([7] * 3)
        assert tokens(await read(long)) == solo([9] * 200)


def test_two_event_loops_at_once(toy_model: LoadedModel) -> None:
    expected = [
        said(LLM.from_loaded(toy_model, Serving(draft="off")).generate(prompt, params)[0]) for prompt, params in CASES
    ]
    worker = Worker(toy_model, Serving(draft="off", max_num_seqs=3))
    worker.start()
    found: dict[int, list[object]] = {}

    async def serve(index: int) -> None:
        tickets = [await worker.submit(ask(toy_model, *case), client=str(index)) for case in CASES]
        found[index] = [said(await answer(toy_model, ticket)) for ticket in tickets]

    threads = [threading.Thread(target=in_loop(serve), args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.stop()
    assert found == {0: expected, 1: expected}


@in_loop
async def test_a_slow_reader_holds_nobody_up_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = scripted_model(WELL)
    async with working(model) as worker:
        slow = await worker.submit(ask(model, [7]))
        quick = await worker.submit(ask(model, [9]))
        assert tokens(await read(quick)) == solo([9])
        assert tokens(await read(await worker.submit(ask(model, [5])))) == solo([5])
        first = await anext(slow)
        assert 0 < len(first) <= 40
        assert [token for timed in first for token in timed.event.token_ids] + tokens(await read(slow)) == solo([7])


@in_loop
async def test_one_call_a_step_and_loop(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    model, loop, calls = gated_model(WELL, gate), asyncio.get_running_loop(), []
    through = loop.call_soon_threadsafe

    def count(callback: Callable[..., object], *args: object, **kwargs: object) -> object:
        if threading.current_thread().name == "offramp-engine":
            calls.append(callback)
        return through(callback, *args, **kwargs)  # type: ignore[arg-type]

    async with working(model, gate) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(8)]
        await gate.reached()
        before = worker.statistics.num_steps
        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        monkeypatch.setattr("offramp.serve.delivery.STREAM_SECONDS", 0.0)
        gate.open()
        for number, ticket in enumerate(tickets):
            assert tokens(await read(ticket)) == solo([7, number])
        assert len(calls) == worker.statistics.num_steps - before


@in_loop
async def test_an_idle_worker_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    admit = Dispatcher.admit

    def count(dispatcher: Dispatcher) -> Turn:
        turns.append(time.perf_counter())
        return admit(dispatcher)

    monkeypatch.setattr(Dispatcher, "admit", count)
    monkeypatch.setattr(Engine, "check_integrity", lambda engine: turns.append(time.perf_counter()))
    model = scripted_model(WELL)
    async with working(model) as worker:
        await read(await worker.submit(ask(model, [7])))
        steps = len(turns)
        assert steps <= 41
        await asyncio.sleep(0.1)
        assert len(turns) == steps
