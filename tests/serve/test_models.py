"""Models that come into memory and go: once for all who wait, within a bound, and never from under a request."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from offramp.core import SamplingParams
from offramp.errors import (
    CorruptModelError,
    InvalidRequestError,
    ModelNotFoundError,
    OfframpError,
    QueueFullError,
    ServerStoppingError,
)
from offramp.serve.errors import HttpError, UnavailableError, failure_of
from offramp.serve.hosted import Hosted
from offramp.serve.models import RETRY_SECONDS, Models
from offramp.testing.gate import Gate, gated_model
from tests.serve.hosting import WELL, Scripted, hosting, states, stays
from tests.serve.reading import Clock, ask, in_loop, read

SHORT = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


async def touch(models: Models, name: str | None = None) -> str:
    """Ask for a model without a request; the name that it answers under."""
    async with models.held(name, stays) as live:
        return live.served.names[0]


async def generate(models: Models, name: str) -> int:
    """Run a request to its end; how many tokens came."""
    async with models.held(name, stays) as live:
        ticket = await live.worker.submit(ask(live.served.loaded, [7, 8], SHORT))
    return sum(len(event.token_ids) for event in await read(ticket))


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


@in_loop
async def test_first_requests_at_the_same_time_load_once() -> None:
    small = Scripted("small")
    small.open.clear()
    with hosting(small) as models:
        asking = [asyncio.create_task(touch(models, "small")) for _ in range(5)]
        await until(small.arriving)
        assert states(models) == ["loading"]
        small.open.set()
        assert await asyncio.gather(*asking) == ["small"] * 5
        await touch(models)
        assert (small.num_finds, states(models)) == (1, ["loaded"])


@in_loop
async def test_the_model_not_asked_for_longest_makes_room() -> None:
    a, b, c = Scripted("a"), Scripted("b"), Scripted("c")
    with hosting(a, b, c, memory=25) as models:
        for name in "aba":
            await touch(models, name)
        assert states(models) == ["loaded", "loaded", "unloaded"]
        await touch(models, "c")
        assert states(models) == ["loaded", "unloaded", "loaded"]
        await touch(models, "b")
        assert states(models) == ["unloaded", "loaded", "loaded"]
        assert [each.num_finds for each in (a, b, c)] == [1, 2, 1]


@in_loop
async def test_several_leave_for_a_large_one() -> None:
    with hosting(Scripted("a"), Scripted("b"), Scripted("c", num_bytes=20), memory=25) as models:
        for name in "abc":
            await touch(models, name)
        assert states(models) == ["unloaded", "unloaded", "loaded"]


@in_loop
async def test_a_held_model_stays_and_the_other_waits_for_it() -> None:
    with hosting(Scripted("a"), b := Scripted("b"), memory=15) as models:
        async with models.held("a", stays):
            waiting = asyncio.create_task(touch(models, "b"))
            await until(b.arriving)
            await asyncio.sleep(0.15)  # some looks at the memory
            assert states(models) == ["loaded", "loading"]
            assert not waiting.done()
        assert await waiting == "b"
        assert states(models) == ["unloaded", "loaded"]


@in_loop
async def test_a_model_with_a_request_stays_until_that_has_ended() -> None:
    gate = Gate()
    with hosting(Scripted("a", make=lambda: gated_model(WELL, gate)), b := Scripted("b"), memory=15) as models:
        gate.close()
        running = asyncio.create_task(generate(models, "a"))
        await gate.reached()
        waiting = asyncio.create_task(touch(models, "b"))
        await until(b.arriving)
        await asyncio.sleep(0.15)
        assert states(models) == ["loaded", "loading"]
        gate.open()
        assert await running == 5
        assert await waiting == "b"
        assert states(models) == ["unloaded", "loaded"]


@in_loop
async def test_who_waits_too_long_is_told_when_to_come_again() -> None:
    with hosting(Scripted("a"), Scripted("b"), memory=15, patience_seconds=0.1) as models:
        async with models.held("a", stays):
            with pytest.raises(UnavailableError) as caught:
                await touch(models, "b")
        failure = failure_of(caught.value)
        assert (failure.status, failure.error["code"], failure.headers["retry-after"]) == (503, "model_busy", "1")
        assert states(models)[0] == "loaded"


@in_loop
async def test_a_model_larger_than_the_memory_is_refused_and_nobody_leaves() -> None:
    with hosting(Scripted("a"), Scripted("b", num_bytes=16), memory=15) as models:
        await touch(models, "a")
        with pytest.raises(UnavailableError, match="memory or disk space is too small"):
            await touch(models, "b")
        assert states(models) == ["loaded", "failed"]


@in_loop
async def test_a_failure_is_told_without_paths_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    clock, big = Clock(), Scripted("big")
    big.error = CorruptModelError("/secret/big.gguf is cut short", hint="none")
    with hosting(big, Scripted("small"), memory=20, clock=clock) as models:
        with pytest.raises(UnavailableError, match="its files are damaged") as caught:
            await touch(models, "big")
        assert "secret" not in str(failure_of(caught.value).error)
        assert failure_of(caught.value).error["code"] == "model_load_failed"
        assert "can't load big: /secret/big.gguf is cut short" in caplog.text
        assert await touch(models, "small") == "small"
        clock.now += RETRY_SECONDS - 1
        with pytest.raises(UnavailableError) as caught:
            await touch(models, "big")
        assert (failure_of(caught.value).headers["retry-after"], big.num_finds) == ("1", 1)
        clock.now += 1
        big.error = None
        assert await touch(models, "big") == "big"
        assert [(each.num_loads, each.num_failures) for each in models] == [(1, 1), (1, 0)]


@in_loop
async def test_what_a_failed_load_had_taken_is_given_back() -> None:
    broken = Scripted("broken", make=lambda: (_ for _ in ()).throw(CorruptModelError("cut short", hint="none")))
    with hosting(broken, Scripted("small"), memory=10) as models:
        with pytest.raises(UnavailableError):
            await touch(models, "broken")
        assert await touch(models, "small") == "small"


@in_loop
async def test_a_bug_while_loading_is_logged_and_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    big = Scripted("big")
    big.error = ZeroDivisionError("ours")
    with hosting(big, Scripted("small")) as models:
        with pytest.raises(UnavailableError, match="internal error"):
            await touch(models, "big")
        assert "ZeroDivisionError" in caplog.text
        assert await touch(models, "small") == "small"


@in_loop
async def test_a_client_that_goes_while_a_model_is_loaded_takes_nothing_along() -> None:
    small = Scripted("small")
    small.open.clear()
    left = asyncio.Event()

    async def goes() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def leaver(models: Models) -> None:
        async with models.held("small", goes):
            raise AssertionError("it has left")

    with hosting(small) as models:
        leaving, staying = asyncio.create_task(leaver(models)), asyncio.create_task(touch(models))
        await until(small.arriving)
        left.set()
        with pytest.raises(ClientDisconnect):
            await leaving
        small.open.set()
        assert await staying == "small"
        assert [hosted.num_holds for hosted in models] == [0]


@in_loop
async def test_only_so_many_wait_for_a_model() -> None:
    small = Scripted("small")
    small.open.clear()
    with hosting(small, max_waiting=2) as models:
        waiting = [asyncio.create_task(touch(models)) for _ in range(2)]
        await until(small.arriving)
        with pytest.raises(QueueFullError):
            await touch(models)
        small.open.set()
        assert await asyncio.gather(*waiting) == ["small"] * 2
        assert await touch(models) == "small"


@in_loop
async def test_an_unloaded_models_memory_is_free() -> None:
    with hosting(Scripted("a"), Scripted("b"), memory=15) as models:

        async def watched() -> weakref.ref[Any]:
            async with models.held("a", stays) as live:
                return weakref.ref(live.served.loaded.executor)

        executor = await watched()
        assert await generate(models, "a") == 5
        assert executor() is not None
        await touch(models, "b")
        assert executor() is None


@in_loop
async def test_counts_never_fall_when_a_model_comes_and_goes() -> None:
    with hosting(Scripted("a"), Scripted("b"), memory=15) as models:
        hosted = next(iter(models))
        for number in (1, 2):
            assert await generate(models, "a") == 5
            assert models.statistics(hosted).num_generated_tokens == 5 * number
            await touch(models, "b")
            now = models.statistics(hosted)
            assert (now.num_generated_tokens, now.num_finished["length"]) == (5 * number, number)
            assert (now.num_pages, now.num_running, now.num_used_pages) == (0, 0, 0)


@in_loop
async def test_draining_ends_what_runs_and_refuses_who_waits() -> None:
    gate, big = Gate(), Scripted("big")
    big.open.clear()
    with hosting(Scripted("a", make=lambda: gated_model(WELL, gate)), big) as models:
        gate.close()
        running = asyncio.create_task(generate(models, "a"))
        await gate.reached()
        waiting = asyncio.create_task(touch(models, "big"))
        await until(big.arriving)
        assert models.num_open == 1
        draining = asyncio.create_task(models.drain(30))
        with pytest.raises(ServerStoppingError):
            await waiting
        with pytest.raises(ServerStoppingError):
            await touch(models, "big")
        gate.open()
        assert (await running, await draining) == (5, 0)
        big.open.set()
        models.stop()
        assert states(models) == ["loaded", "unloaded"]


@in_loop
async def test_idle_models_leave_after_a_while() -> None:
    clock, half = Clock(), 30.0
    with hosting(Scripted("a"), Scripted("b"), clock=clock) as models:
        look = models._loader.unload_unused
        async with models.held("a", stays):
            await touch(models, "b")
            look(2 * half)
            clock.now += half
            look(2 * half)
        await touch(models, "b")
        clock.now += half
        look(2 * half)  # a has been seen to be idle now for the first time, b was asked for half a minute ago
        assert states(models) == ["loaded", "loaded"]
        clock.now += half
        look(2 * half)
        assert states(models) == ["loaded", "unloaded"]
        clock.now += half
        look(2 * half)
        assert states(models) == ["unloaded", "unloaded"]
        assert await touch(models, "a") == "a"


def test_somebody_looks_for_idle_models() -> None:
    with hosting(Scripted("a", when="start"), keep_alive_seconds=0.1) as models:
        models.load_at_start()
        end = time.monotonic() + 30
        while states(models) != ["unloaded"]:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert asyncio.run(touch(models)) == "a"


def test_at_the_start_as_many_are_loaded_as_fit(caplog: pytest.LogCaptureFixture) -> None:
    wanted = [Scripted("a", when="start"), Scripted("b", num_bytes=8, when="start"), Scripted("c", when="demand")]
    with hosting(*wanted, Scripted("d", num_bytes=3, when="start"), memory=15) as models:
        models.load_at_start()
        assert states(models) == ["loaded", "unloaded", "unloaded", "loaded"]
    assert "b is loaded when it is asked for" in caplog.text


def test_at_the_start_one_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    gone, typo, good = Scripted("gone", when="start"), Scripted("typo"), Scripted("good", when="start")
    gone.error = ModelNotFoundError("no gone.gguf", hint="check the path")
    typo.unknown = ModelNotFoundError("no typo.gguf", hint="check the path")
    with hosting(gone, typo, good) as models:
        models.load_at_start()
        assert states(models) == ["failed", "failed", "loaded"]
        assert models.card("gone")["status"] == {"value": "failed", "error": "it was not found"}
    assert "no gone.gguf (hint: check the path)" in caplog.text
    assert "no typo.gguf" in caplog.text
    assert typo.num_finds == 0


def test_at_the_start_a_server_without_any_model_ends() -> None:
    both = [Scripted("a", when="start"), Scripted("b", when="start")]
    for each in both:
        each.error = ModelNotFoundError(f"no {each.names[0]}", hint="none")
    with hosting(*both) as models, pytest.raises(OfframpError, match="no a"):
        models.load_at_start()


def test_loads_and_unloads_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "offramp.serve.models"),
        hosting(Scripted("a"), Scripted("b"), memory=15) as models,
    ):
        asyncio.run(touch(models, "a"))
        asyncio.run(touch(models, "b"))
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
        "loaded a",
        "unloaded a: 0.0 KiB",
        "loaded b",
    ]


def test_names_are_found_or_refused() -> None:
    with hosting(Scripted("a", "alias"), Scripted("b")) as models:
        assert models.find(None).name == models.find("alias").name == "a"
        with pytest.raises(HttpError, match="there is no model 'c'") as caught:
            models.find("c")
        assert (caught.value.status, caught.value.hint) == (404, "this server has a, alias, b")
        with pytest.raises(InvalidRequestError, match="model=5"):
            models.find(5)


@pytest.mark.parametrize("names", [[("a",), ("b", "a")], [()], [("",)]])
def test_impossible_names_are_refused(names: list[tuple[str, ...]]) -> None:
    with pytest.raises(InvalidRequestError, match="served_model_name"):
        Models([Hosted(each, Scripted("x")) for each in names])
