"""What the engine's thread does when nobody asks for anything: look after pages, measure stale costs anew."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.errors import ResourceError
from offramp.llm import LoadedModel, cost_refresh
from offramp.serve import worker as worker_module
from offramp.testing.gate import Gate, gated_model
from tests.serve.reading import LONG, WELL, Clock, ask, in_loop, read, tokens, working


class Quiet:
    """Counts quiet moments and measurements; `wait` for the next of them."""

    def __init__(self) -> None:
        self.num_checks = 0
        self.num_measured = 0
        self.error: ResourceError | None = None
        self._changed = threading.Condition()

    def check(self) -> None:
        with self._changed:
            self.num_checks += 1
            self._changed.notify_all()

    def measure(self, costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: object) -> bool:
        assert not engine.has_work
        with self._changed:
            self.num_measured += 1
            self._changed.notify_all()
        if self.error:
            raise self.error
        return True

    def wait(self, done: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(done, 30)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Quiet:
    seen = Quiet()
    monkeypatch.setattr(worker_module, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(cost_refresh, "refresh_costs", seen.measure)
    monkeypatch.setattr(Engine, "check_integrity", lambda engine: seen.check())
    monkeypatch.setattr(MeasuredCosts, "stale", property(lambda costs: True))
    return seen


@in_loop
async def test_stale_costs_are_measured_when_idle_once_a_minute(quiet: Quiet, gate: Gate) -> None:
    model, clock = gated_model(WELL, gate), Clock()
    async with working(model, gate, clock=clock) as worker:
        quiet.wait(lambda: quiet.num_measured == 1)
        for _ in range(3):  # another quiet moment within the minute
            checks = quiet.num_checks
            await read(await worker.submit(ask(model, [7])))
            quiet.wait(lambda checks=checks: quiet.num_checks > checks)  # type: ignore[misc]
            clock.now += 15
        await read(await worker.submit(ask(model, [7])))
        assert quiet.num_measured == 1
        clock.now += 20
        await read(await worker.submit(ask(model, [7])))
        quiet.wait(lambda: quiet.num_measured == 2)


@in_loop
async def test_a_measurement_that_fails_harms_nobody(
    quiet: Quiet, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    quiet.error = ResourceError("too few pages", hint="none")
    model = gated_model(WELL, gate)
    async with working(model, gate) as worker:
        quiet.wait(lambda: quiet.num_measured == 1)
        assert len(tokens(await read(await worker.submit(ask(model, [7]))))) == LONG.max_tokens
        assert worker.failure is None
    assert "too few pages" in caplog.text


@in_loop
async def test_pages_that_disagree_are_an_internal_error(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    told = threading.Event()

    def check(engine: Engine) -> None:
        told.set()
        raise AssertionError("broken on purpose")

    monkeypatch.setattr(worker_module, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(Engine, "check_integrity", check)
    async with working(gated_model(WELL, gate), gate) as worker:
        assert told.wait(30)
        worker.stop()
        assert isinstance(worker.failure, AssertionError)
