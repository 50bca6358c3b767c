"""Who waits, in which order, how many, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp.errors import (
    QueueFullError,
)
from offramp.llm.serving import Serving
from offramp.serve.ticket import Ticket
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import scripted_model
from tests.serve.reading import LONG, WELL, Clock, ask, ends, in_loop, read, solo, tokens, working


@in_loop
async def test_a_full_queue_refuses_until_a_place_is_free(gate: Gate) -> None:
    model = gated_model(WELL, gate)
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=2), max_queued=3) as worker:
        gate.close()
        tickets = [await worker.submit(ask(model, [7, number])) for number in range(5)]  # before the thread can look
        for _ in range(2):
            with pytest.raises(QueueFullError, match="3 requests wait already") as refusal:
                await worker.submit(ask(model, [7]))
            assert refusal.value.retry_after_seconds >= 1
            await gate.reached()  # now two of them run, or one that the thread saw before the others came
        while worker.statistics.num_queued == 4:
            await gate.turn()
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
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=2), max_queued=0) as worker:
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
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1)) as worker:
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
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1)) as worker:
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


@in_loop
async def test_time_limits(gate: Gate) -> None:
    model, clock = gated_model(WELL, gate), Clock()
    async with working(model, gate, serving=Serving(draft="off", max_num_seqs=1), clock=clock) as worker:
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
async def test_a_request_of_one_step_has_started_too(gate: Gate) -> None:
    model, clock = gated_model(WELL, gate), Clock()
    async with working(model, gate, clock=clock) as worker:
        gate.close()
        ticket = await worker.submit(ask(model, [7], replace(LONG, max_tokens=1)))
        await gate.reached()
        clock.now += 1
        gate.open()
        [event] = await read(ticket)
        assert (event.finish_reason, ticket.submitted, ticket.started) == ("length", 1000.0, 1000.0)
