"""Costs of a loaded model: measured once, found again, measured anew when stale, never at a request's expense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from offramp.core import Request, SamplingParams
from offramp.engine.cost import WINDOW
from offramp.engine.engine import Engine
from offramp.errors import ResourceError
from offramp.llm import costs as costs_module
from offramp.llm.costs import load_costs, refresh_costs
from offramp.llm.loading import LoadedModel
from offramp.native import build_executor
from offramp.testing.models import chat_tokenizer, loaded_model, says, scripted_model
from offramp.testing.running import run
from offramp.testing.toy import toy_config, toy_source


def native_model(threads: int = 1, num_pages: int = 8) -> LoadedModel:
    config = toy_config(vocab_size=chat_tokenizer().vocab_size, max_context=128)
    return loaded_model(build_executor(toy_source(config, seed=3), num_pages=num_pages, threads=threads))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pages of each measurement, in a box that tests can wait for."""
    seen: list[int] = []
    original = costs_module.measure_costs

    def measure(executor: object, pages: object) -> object:
        seen.append(len(pages))  # type: ignore[arg-type]
        return original(executor, pages, box_seconds=0.05)  # type: ignore[arg-type]

    monkeypatch.setattr(costs_module, "measure_costs", measure)
    return seen


def ask() -> Request:
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    return Request(request_id="r", prompt_token_ids=list(range(60)), params=params, seed=0)


def test_measured_once_and_found_again(tmp_path: Path, counted: list[int]) -> None:
    first = load_costs(native_model(), tmp_path)
    assert load_costs(native_model(), tmp_path).table == first.table
    assert counted == [8]


def test_other_threads_weights_model_or_damage_are_measured(tmp_path: Path, counted: list[int]) -> None:
    model = native_model()
    others = [native_model(threads=2), replace(model, weights="q8"), replace(model, source_hash="other")]
    for each in (model, *others):
        load_costs(each, tmp_path)
    assert len(counted) == len(list(tmp_path.iterdir())) == 4
    for file in tmp_path.iterdir():
        file.write_text("{}")
    load_costs(model, tmp_path)
    assert len(counted) == 5


def test_an_executor_we_know_nothing_about_is_measured_each_time(tmp_path: Path, counted: list[int]) -> None:
    for _ in range(2):
        load_costs(scripted_model(says(), num_pages=8), tmp_path)
    assert len(counted) == 2
    assert not list(tmp_path.iterdir())


def test_too_few_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="takes 3 K/V pages, and fewer are free"):
        load_costs(native_model(num_pages=2), tmp_path)


def test_stale_costs_are_measured_between_requests_and_cached_prefixes_stay_right(
    tmp_path: Path, counted: list[int]
) -> None:
    model = native_model()
    costs = load_costs(model, tmp_path)
    engine = Engine(model.executor, max_context=128, costs=costs)
    alone = run(Engine(native_model().executor, max_context=128), [ask()])["r", 0].token_ids
    assert run(engine, [ask()])["r", 0].token_ids == alone
    for _ in range(WINDOW):
        costs.observe(1, 2, 0, 1e3)
    assert costs.stale
    engine.add_request(ask())
    assert not refresh_costs(costs, model, engine, tmp_path)
    engine.abort("r")
    engine.step()
    assert refresh_costs(costs, model, engine, tmp_path)
    assert not costs.stale
    assert not refresh_costs(costs, model, engine, tmp_path)
    assert counted == [8, 8]
    assert run(engine, [ask()])["r", 0].token_ids == alone
    assert load_costs(native_model(), tmp_path).table == costs.table
