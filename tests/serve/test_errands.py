"""Errands are done by the engine's thread between steps, and nobody waits for one that will not be done."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue

import pytest

from offramp.errors import ServerStoppingError
from offramp.llm.serving import Serving
from offramp.serve.errands import Errands
from offramp.serve.worker import Worker
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing

WELL = mixing(chat_tokenizer().vocab_size, first=3)


def started() -> Worker:
    worker = Worker(scripted_model(WELL), Serving(draft="off"))
    worker.start()
    return worker


def test_it_is_done_in_the_engines_thread() -> None:
    worker = started()
    try:
        name = asyncio.run(worker.between_steps(lambda engine: threading.current_thread().name))
        assert name == "offramp-engine"
    finally:
        worker.stop()


def test_what_it_raises_its_sender_gets_and_the_engine_goes_on() -> None:
    worker = started()

    async def ask() -> None:
        with pytest.raises(ZeroDivisionError):
            await worker.between_steps(lambda engine: 1 // 0)
        assert await worker.between_steps(lambda engine: 5) == 5

    try:
        asyncio.run(ask())
        assert worker.failure is None
    finally:
        worker.stop()


def test_a_stopped_worker_takes_none() -> None:
    worker = started()
    worker.stop()
    with pytest.raises(ServerStoppingError):
        asyncio.run(worker.between_steps(lambda engine: 5))


def test_what_nobody_will_do_any_more_fails() -> None:
    async def ask() -> None:
        errands, inbox = Errands(), SimpleQueue()  # type: ignore[var-annotated]
        waiting = asyncio.ensure_future(errands.send(lambda: 5, inbox))
        await asyncio.sleep(0)
        errands.close()
        with pytest.raises(ServerStoppingError):
            await waiting
        with pytest.raises(ServerStoppingError):
            await errands.send(lambda: 5, inbox)
        inbox.get()(None)  # comes too late, and breaks nothing

    asyncio.run(ask())


def test_what_was_given_up_is_not_begun() -> None:
    async def ask() -> None:
        errands, inbox, done = Errands(), SimpleQueue(), []  # type: ignore[var-annotated]
        waiting = asyncio.ensure_future(errands.send(lambda: done.append(1), inbox))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        inbox.get()(None)
        assert done == []

    asyncio.run(ask())
