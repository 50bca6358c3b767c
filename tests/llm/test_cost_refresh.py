"""Costs in doubt are measured anew by whoever runs the engine: at once, then seldom, and never while something runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import LLM, RequestOptions, SamplingParams
from offramp.core import Request
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.engine import Engine
from offramp.errors import ResourceError
from offramp.llm import cost_refresh
from offramp.llm.cost_refresh import LEAST_SECONDS, MOST_SECONDS, CostRefresh
from offramp.llm.loading import LoadedModel
from offramp.testing.models import scripted_model
from offramp.testing.scripted import ScriptedModel, mixing


class Measuring:
    """In place of measuring: counts the tries; `helps` is what each answers."""

    def __init__(self) -> None:
        self.num_tries = 0
        self.helps = True
        self.error: ResourceError | None = None
        self.now = 1000.0

    def __call__(self, costs: MeasuredCosts, loaded: LoadedModel, engine: Engine, folder: Path) -> bool:
        assert not engine.has_work
        self.num_tries += 1
        if self.error:
            raise self.error
        return self.helps

    def clock(self) -> float:
        return self.now


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    seen = Measuring()
    monkeypatch.setattr(cost_refresh, "refresh_costs", seen)
    return seen


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredCosts, "stale", property(lambda costs: True))


def refresh_with(measuring: Measuring, table: CostTable | None = None) -> tuple[CostRefresh, Engine]:
    refresh = CostRefresh(MeasuredCosts(table), scripted_model(mixing()), clock=measuring.clock)
    return refresh, Engine(ScriptedModel(mixing(), num_pages=8), max_context=64)


def pauses(refresh: CostRefresh, engine: Engine, measuring: Measuring, count: int) -> list[float]:
    """Seconds that had to pass before each of the next tries."""
    found: list[float] = []
    for _ in range(count):
        before, wait = measuring.num_tries, refresh.wait
        assert wait is not None
        measuring.now += wait - 0.5
        refresh.attempt(engine)
        assert (measuring.num_tries, refresh.due) == (before, False)
        measuring.now += 0.5
        assert refresh.due
        refresh.attempt(engine)
        assert measuring.num_tries == before + 1
        found.append(wait)
    return found


def test_costs_without_doubt_are_left_alone(measuring: Measuring) -> None:
    refresh, engine = refresh_with(measuring)
    refresh.attempt(engine)
    assert (refresh.due, refresh.wait, measuring.num_tries) == (False, None, 0)


@pytest.mark.usefixtures("stale")
def test_at_once_then_twice_as_long_after_each_measurement_up_to_an_hour(measuring: Measuring) -> None:
    refresh, engine = refresh_with(measuring)
    assert (refresh.due, refresh.wait) == (True, 0.0)
    refresh.attempt(engine)
    assert measuring.num_tries == 1
    waits = pauses(refresh, engine, measuring, 8)
    assert waits == [min(LEAST_SECONDS * 2**n, MOST_SECONDS) for n in range(8)]
    assert waits[-1] == MOST_SECONDS


def test_costs_of_a_busy_moment_are_first_tried_after_a_minute(measuring: Measuring) -> None:
    curve = Curve(((1, 1.0),))
    table = CostTable(num_layers=2, context=32, call=0.0, layers=curve, per_token=curve, head=curve, load=0.8)
    refresh, engine = refresh_with(measuring, table)
    assert pauses(refresh, engine, measuring, 2) == [LEAST_SECONDS] * 2


@pytest.mark.usefixtures("stale")
def test_a_try_at_a_busy_moment_is_cheap_and_made_again_in_a_minute(measuring: Measuring) -> None:
    refresh, engine = refresh_with(measuring)
    measuring.helps = False
    refresh.attempt(engine)
    assert pauses(refresh, engine, measuring, 3) == [LEAST_SECONDS] * 3


@pytest.mark.usefixtures("stale")
def test_a_request_that_runs_is_not_held_up_and_costs_no_try(measuring: Measuring) -> None:
    refresh, engine = refresh_with(measuring)
    params = SamplingParams(temperature=0, max_tokens=2)
    engine.add_request(Request(request_id="r", prompt_token_ids=[1], params=params, seed=0))
    refresh.attempt(engine)
    assert (measuring.num_tries, refresh.due) == (0, True)
    engine.abort("r")
    engine.step()
    refresh.attempt(engine)
    assert measuring.num_tries == 1


@pytest.mark.usefixtures("stale")
def test_a_failure_is_only_logged(measuring: Measuring, caplog: pytest.LogCaptureFixture) -> None:
    refresh, engine = refresh_with(measuring)
    measuring.error = ResourceError("too few pages", hint="none")
    with caplog.at_level(logging.WARNING, "offramp"):
        refresh.attempt(engine)
    assert "can't be measured anew: too few pages" in caplog.text
    assert pauses(refresh, engine, measuring, 1) == [LEAST_SECONDS]


@pytest.fixture
def steady_llm(toy_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """A model whose costs no step corrects; `LLM._costs` tells what the engine believes."""
    monkeypatch.setattr(MeasuredCosts, "observe", lambda *arguments, **names: None)
    with LLM(str(toy_path), threads=1) as llm:
        yield llm


def test_an_llm_measures_stale_costs_before_its_next_request_that_drafts(
    steady_llm: LLM, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    steady_llm.generate(["a", "b"], params)
    assert measuring.num_tries == 0
    monkeypatch.setattr(MeasuredCosts, "stale", property(lambda costs: True))
    steady_llm.generate("a", params, RequestOptions(draft="off"))
    assert measuring.num_tries == 0
    steady_llm.generate(["a", "b"], params)
    steady_llm.generate("a", params)
    assert measuring.num_tries == 1
