"""Readers in event loops share one engine thread: equal to `LLM`, and whatever ends a request ends only that one."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from offramp import LLM, InvalidRequestError, RequestOutput, SamplingParams
from offramp.core import Rows
from offramp.errors import ContextLengthError, EngineFailedError, NumericError, QueueFullError, ServerStoppingError
from offramp.llm import LoadedModel
from offramp.llm.serving import Serving
from offramp.model.executor import Hidden
from offramp.model.hidden import ArrayHidden
from offramp.params import RequestOptions
from offramp.serve.dispatch import Dispatcher, Turn
from offramp.serve.ticket import Ticket
from offramp.serve.worker import Worker
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import Script, ScriptedModel, mixing
from tests.serve.reading import LONG, answer, ask, ends, in_loop, read, tokens, working

VOCAB = chat_tokenizer().vocab_size
WELL = mixing(VOCAB)

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
    plain = LLM.from_loaded(toy_model, Serving())
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
    [expected] = LLM.from_loaded(toy_model).generate(prompt, params)
    async with working(toy_model) as worker:
        drafted = ask(toy_model, prompt, params, options=RequestOptions(draft="ngram"))
        tickets = [await worker.submit(ask(toy_model, prompt, params)), await worker.submit(drafted)]
        for ticket in tickets:
            assert said(await answer(toy_model, ticket)) == said(expected)


def solo(prompt: list[int], params: SamplingParams = LONG) -> list[int]:
    [output] = LLM.from_loaded(scripted_model(WELL)).generate(prompt, params)
    return output.outputs[0].token_ids


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
async def test_cancel_frees_pages_within_a_step_and_nobody_else_notices(gate: Gate) -> None:
    """B106: one stream is cancelled while another is in prefill; both that one and a later one complete."""
    model = gated_model(WELL, gate)
    prompt = [9] * 200
    async with working(model, gate, serving=Serving(max_num_batched_tokens=16)) as worker:
        gate.close()
        first = await worker.submit(ask(model, [7] * 40))
        for _ in range(4):
            await gate.turn()
        long = await worker.submit(ask(model, prompt))
        for _ in range(3):
            await gate.turn()
        assert worker.statistics.num_used_pages == 2 + 1
        first.cancel()
        first.cancel()
        await gate.turn()  # it was in the plan of the step that stood at the gate
        assert worker.statistics.num_used_pages == 2
        await gate.turn()
        events = await read(first)
        assert ends(events) == ["abort"]
        assert tokens(events) == solo([7] * 40)[: len(tokens(events))] != []
        assert worker.statistics.num_prompt_tokens == 40
        gate.open()
        later = await worker.submit(ask(model, [5] * 3))
        assert tokens(await read(long)) == solo(prompt)
        assert tokens(await read(later)) == solo([5] * 3)
        first.cancel()
        assert worker.statistics.num_finished == {"abort": 1, "length": 2}


@in_loop
async def test_a_long_prefill_starves_nobody(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_batched_tokens=16)) as worker:
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


@in_loop
async def test_a_dropped_ticket_is_cancelled(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=1)) as worker:
        gate.close()
        running = await worker.submit(ask(model, [7]))
        await gate.reached()
        queued = await worker.submit(ask(model, [8]))
        assert worker.statistics.num_queued == 1
        del running, queued
        gc.collect()
        gate.open()
        last = await worker.submit(ask(model, [9]))
        assert tokens(await read(last)) == solo([9])
        assert worker.statistics.num_finished == {"abort": 1, "length": 1}
        assert worker.statistics.num_generated_tokens <= 40 + 2


@in_loop
async def test_a_finished_ticket_cancels_nobody_of_the_same_name(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate) as worker:
        ticket = await worker.submit(ask(model, [7], replace(LONG, max_tokens=1), request_id="same"))
        while worker.statistics.num_finished["length"] == 0:
            await asyncio.sleep(0.001)
        gate.close()
        again = await worker.submit(ask(model, [7], request_id="same"))
        ticket.cancel()  # finished, and nobody has read it
        del ticket
        await gate.reached()
        gate.open()
        assert tokens(await read(again)) == solo([7])


@in_loop
async def test_a_full_queue_refuses_until_a_place_is_free(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=2), max_queued=3) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(5)]  # before the thread can look
        for _ in range(2):
            with pytest.raises(QueueFullError, match="3 requests wait already") as refusal:
                await worker.submit(ask(model, [7]))
            assert refusal.value.retry_after_seconds >= 1
            await gate.reached()  # now two of them run
        assert worker.statistics.num_queued == 3
        tickets[4].cancel()
        await gate.turn()
        tickets.append(await worker.submit(ask(model, [7, 5])))
        with pytest.raises(QueueFullError):
            await worker.submit(ask(model, [7]))
        gate.open()
        for number in (0, 1, 2, 3, 5):
            assert tokens(await read(tickets[number])) == solo([7, number])
        assert ends(await read(tickets[4])) == ["abort"]


@in_loop
async def test_without_a_queue_as_many_are_served_as_can_run(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=2), max_queued=0) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(2)]
        with pytest.raises(QueueFullError, match="0 requests wait"):
            await worker.submit(ask(model, [7]))
        gate.open()
        for ticket in tickets:
            await read(ticket)
        assert tokens(await read(await worker.submit(ask(model, [7])))) == solo([7])


async def order_of_starts(tickets: dict[str, Ticket]) -> str:
    for ticket in tickets.values():
        await read(ticket)
    return " ".join(sorted(tickets, key=lambda name: tickets[name].started or 0))


@in_loop
async def test_clients_take_turns(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=1)) as worker:
        gate.close()
        tickets = {"a0": await worker.submit(ask(model, [7]), client="a")}
        await gate.reached()
        for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
            tickets[name] = await worker.submit(ask(model, [7]), client=name[0])
        gate.open()
        assert await order_of_starts(tickets) == "a0 a1 b1 c1 a2 b2 a3"


@in_loop
async def test_the_more_urgent_goes_first_and_needs_no_free_place(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=1)) as worker:
        gate.close()
        tickets = {"running": await worker.submit(ask(model, [7]), client="a")}
        await gate.turn()
        tickets["later"] = await worker.submit(ask(model, [8]))
        tickets["urgent"] = await worker.submit(replace(ask(model, [9]), priority=-1))
        await gate.turn()
        await gate.turn()
        assert worker.statistics.num_preemptions == 1
        gate.open()
        assert await order_of_starts(tickets) == "running urgent later"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@in_loop
async def test_time_limits(gate: Gate) -> None:
    model, clock = gated_model(WELL, gate), Clock()
    async with working(model, gate, serving=Serving(max_num_seqs=1), clock=clock) as worker:
        gate.close()
        runs = await worker.submit(ask(model, [7]), queue_seconds=2, total_seconds=9)
        await gate.turn()
        tickets = {
            "queue": await worker.submit(ask(model, [8], replace(LONG, n=2)), queue_seconds=5, total_seconds=8),
            "total": await worker.submit(ask(model, [8]), queue_seconds=8, total_seconds=5),
            None: await worker.submit(ask(model, [8])),
        }
        clock.now += 4.9
        await gate.turn()
        assert worker.statistics.num_queued == 3
        clock.now += 0.2
        await gate.turn()
        await gate.turn()
        assert worker.statistics.num_queued == 1
        assert ends(await read(tickets["queue"])) == ["abort", "abort"]
        assert ends(await read(tickets["total"])) == ["abort"]
        clock.now += 5
        await gate.turn()
        await gate.turn()
        events = await read(runs)
        assert ends(events) == ["abort"]
        assert runs.expired == "total"
        gate.open()
        assert tokens(await read(tickets[None])) == solo([8])
        assert {name: ticket.expired for name, ticket in tickets.items()} == {name: name for name in tickets}
        assert (runs.started, tickets["queue"].started, tickets[None].started) == (1000.0, None, clock.now)


@in_loop
async def test_who_waits_for_pages_waits_in_the_queue(gate: Gate) -> None:
    """The engine has the request already, but none of its rows has run."""
    model, clock = gated_model(WELL, gate, num_pages=4), Clock()
    async with working(model, gate, clock=clock) as worker:
        gate.close()
        large = await worker.submit(ask(model, [7] * 80))
        await gate.turn()
        waits = await worker.submit(ask(model, [8] * 80), queue_seconds=5)
        await gate.turn()
        assert (worker.statistics.num_waiting, worker.statistics.num_queued) == (1, 0)
        clock.now += 6
        await gate.turn()
        await gate.turn()
        assert ends(await read(waits)) == ["abort"]
        assert (waits.expired, waits.started) == ("queue", None)
        gate.open()
        assert tokens(await read(large)) == solo([7] * 80)


@in_loop
async def test_a_limit_that_holds_changes_nothing() -> None:
    model = scripted_model(WELL)
    async with working(model) as worker:
        ticket = await worker.submit(ask(model, [7]), queue_seconds=600, total_seconds=600)
        assert tokens(await read(ticket)) == solo([7])
        assert ticket.expired is None


@in_loop
async def test_drain_lets_requests_finish(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=1)) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(3)]
        await gate.reached()
        draining = asyncio.create_task(worker.drain(600))
        await asyncio.sleep(0)
        with pytest.raises(ServerStoppingError):
            await worker.submit(ask(model, [7]))
        gate.open()
        assert await draining == 0
        assert await worker.drain(0) == 0
        for number, ticket in enumerate(tickets):
            assert tokens(await read(ticket)) == solo([7, number])


@in_loop
async def test_drain_aborts_what_goes_on_at_the_deadline(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(max_num_seqs=1)) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(3)]
        await gate.turn()
        draining = asyncio.create_task(worker.drain(0))
        for _ in range(20):  # rounds of the loop, until the deadline has passed
            await asyncio.sleep(0)
        await gate.step()
        gate.open()
        assert await draining == 3
        for ticket in tickets:
            assert ends(await read(ticket)) == ["abort"]
        assert worker.statistics.num_used_pages == 0


@in_loop
async def test_stop_ends_every_request(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    worker = Worker(model, Serving(max_num_seqs=1))
    worker.start()
    gate.close()
    tickets = [await worker.submit(ask(model, [7, number])) for number in range(3)]
    await gate.reached()
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    await gate.step()
    gate.open()
    await stopping
    worker.stop()
    for ticket in tickets:
        assert ends(await read(ticket)) == ["abort"]
    with pytest.raises(ServerStoppingError):
        await worker.submit(ask(model, [7]))
    assert (worker.statistics.num_used_pages, worker.failure) == (0, None)


def test_a_worker_that_never_started_may_be_stopped() -> None:
    Worker(scripted_model(WELL), Serving()).stop()


class BrokenModel(ScriptedModel):
    """Breaks in the step that `broken` is set in."""

    def __init__(self, script: Script, gate: Gate) -> None:
        super().__init__(script, num_pages=16, vocab_size=VOCAB)
        self._gate = gate
        self.broken = False

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        self._gate.pass_through()
        if self.broken:
            raise SystemExit("broken on purpose")  # not even an Exception
        return super().run_layers(h, rows, start, stop)


@in_loop
async def test_when_the_engine_breaks_everybody_is_told(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    executor = BrokenModel(WELL, gate)
    model = replace(scripted_model(WELL), executor=executor)
    async with working(model, gate, serving=Serving(max_num_seqs=2)) as worker:
        gate.close()
        running = await worker.submit(ask(model, [7], replace(LONG, n=2)))
        await gate.turn()
        await gate.turn()
        queued, cancelled = [await worker.submit(ask(model, [8])) for _ in range(2)]
        await gate.turn()
        cancelled.cancel()  # its end is decided, not told, in the turn that breaks
        draining = asyncio.create_task(worker.drain(600))
        await asyncio.sleep(0)
        await gate.step()
        await gate.reached()
        executor.broken = True
        late = asyncio.create_task(read(cancelled))
        gate.open()
        for ticket, count in ((running, 2), (queued, 1)):
            events = await read(ticket)
            assert ends(events) == ["error"] * count
            assert all(isinstance(event.error, EngineFailedError) for event in events[-count:])
        assert len(ends(await late)) == 1
        assert await draining == 0
        assert isinstance(worker.failure, SystemExit)
        with pytest.raises(EngineFailedError, match="SystemExit"):
            await worker.submit(ask(model, [7]))
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "internal error" in record.message


@in_loop
async def test_a_model_that_fails_on_one_request_serves_the_others() -> None:
    def script(history: tuple[int, ...], depth: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.full(VOCAB, np.nan, np.float32) if history[0] == 5 and len(history) > 6 else WELL(history, depth)

    model = scripted_model(script)
    async with working(model) as worker:
        bad = await worker.submit(ask(model, [5, 7]))
        good = await worker.submit(ask(model, [7, 7]))
        events = await read(bad)
        assert (ends(events), len(tokens(events))) == (["error"], 5)
        assert isinstance(events[-1].error, NumericError)
        assert tokens(await read(good)) == solo([7, 7])


def test_two_event_loops_at_once(toy_model: LoadedModel) -> None:
    expected = [said(LLM.from_loaded(toy_model).generate(prompt, params)[0]) for prompt, params in CASES]
    worker = Worker(toy_model, Serving(max_num_seqs=3))
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


def test_requests_of_a_closed_loop_are_cancelled(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    kept: list[Ticket] = []

    @in_loop
    async def leave(worker: Worker) -> None:
        gate.close()
        kept.append(await worker.submit(ask(model, [7])))
        await gate.reached()

    @in_loop
    async def serve() -> None:
        async with working(model, gate) as worker:
            await asyncio.to_thread(leave, worker)
            gate.open()
            assert tokens(await read(await worker.submit(ask(model, [9])))) == solo([9])
            assert worker.statistics.num_finished == {"abort": 1, "length": 1}

    serve()


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
    model = scripted_model(WELL)
    async with working(model) as worker:
        await read(await worker.submit(ask(model, [7])))
        steps = len(turns)
        assert steps <= 41
        await asyncio.sleep(0.1)
        assert len(turns) == steps
