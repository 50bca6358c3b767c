"""However requests end before their time, their pages come back, readers are told, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Rows
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.engine import Engine
from offramp.errors import (
    EngineFailedError,
    NumericError,
    ResourceError,
    ServerStoppingError,
)
from offramp.llm.serving import Serving
from offramp.model.executor import Hidden
from offramp.model.hidden import ArrayHidden
from offramp.params import RequestOptions
from offramp.serve import worker as worker_module
from offramp.serve.ticket import Ticket
from offramp.serve.worker import Worker
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import scripted_model
from offramp.testing.scripted import Script, ScriptedModel
from tests.serve.reading import LONG, VOCAB, WELL, ask, ends, in_loop, read, solo, tokens, working


@in_loop
async def test_cancel_frees_pages_within_a_step_and_nobody_else_notices(gate: Gate) -> None:
    """B106: one stream is cancelled while another is in prefill; both that one and a later one complete."""
    model = gated_model(WELL, gate)
    prompt = [9] * 200
    async with working(model, gate, serving=Serving(draft="off", max_num_batched_tokens=16)) as worker:
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
async def test_a_dropped_ticket_is_cancelled(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1)) as worker:
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
async def test_a_reader_that_is_cancelled_gives_its_request_up(gate: Gate) -> None:
    """As when a client disconnects while the server waits for the next token."""
    model = gated_model(WELL, gate)
    async with working(model, gate) as worker:
        gate.close()
        reader = asyncio.create_task(read(await worker.submit(ask(model, [7]))))
        await gate.reached()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        del reader
        gc.collect()
        gate.open()
        assert tokens(await read(await worker.submit(ask(model, [9])))) == solo([9])
        assert worker.statistics.num_finished == {"abort": 1, "length": 1}


@in_loop
async def test_a_finished_ticket_cancels_nobody_of_the_same_name(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate) as worker:
        ticket = await worker.submit(ask(model, [7], replace(LONG, max_tokens=1), request_id="same"))
        while worker.statistics.num_finished["length"] == 0:
            assert worker.failure is None
            time.sleep(0.001)  # the loop stands still, so its end is not delivered yet
        gate.close()
        again = await worker.submit(ask(model, [7], request_id="same"))
        gate.wait_until_reached()
        ticket.cancel()
        del ticket
        gate.open()
        assert tokens(await read(again)) == solo([7])


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
async def test_drain_lets_requests_finish(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1)) as worker:
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
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1)) as worker:
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
    worker = Worker(model, Serving(draft="off", max_num_seqs=1))
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
    Worker(scripted_model(WELL), Serving(draft="off")).stop()


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
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=2)) as worker:
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
async def test_drafts_that_can_not_be_had_fail_only_who_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise ResourceError("too few pages to measure with", hint="none")

    monkeypatch.setattr(worker_module, "ready_costs", refuse)
    model = scripted_model(WELL)
    async with working(model) as worker:
        bad = await worker.submit(ask(model, [7], replace(LONG, n=2), options=RequestOptions(draft="ngram")))
        good = await worker.submit(ask(model, [7]))
        events = await read(bad)
        assert ends(events) == ["error", "error"]
        assert isinstance(events[-1].error, ResourceError)
        assert tokens(await read(good)) == solo([7])


@in_loop
async def test_drafts_wait_for_pages_to_measure_with(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few pages are free as long as another request runs; whoever comes later waits behind."""
    num_refused = 0

    def measure(costs: MeasuredCosts, loaded: object, engine: Engine) -> None:
        nonlocal num_refused
        if engine.has_work:
            num_refused += 1
            raise ResourceError("too few pages to measure with", hint="none")
        curve = Curve(((1, 1e-3),))
        costs.replace(CostTable(num_layers=2, context=32, call=0.0, layers=curve, per_token=curve, head=curve))

    monkeypatch.setattr(worker_module, "ready_costs", measure)
    model = gated_model(WELL, gate)
    async with working(model, gate) as worker:
        gate.close()
        running = await worker.submit(ask(model, [7]))
        await gate.reached()
        waits = await worker.submit(ask(model, [8], options=RequestOptions(draft="ngram")))
        behind = await worker.submit(ask(model, [9]))
        for _ in range(3):
            await gate.turn()
        assert (worker.statistics.num_queued, worker.statistics.num_running) == (2, 1)
        gate.open()
        for ticket, prompt in ((running, [7]), (waits, [8]), (behind, [9])):
            assert tokens(await read(ticket)) == solo(prompt)
    assert num_refused > 3


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
