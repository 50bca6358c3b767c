"""Costs of a loaded model: measured once, found again, measured anew when in doubt, never at a request's expense."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from offramp.core import Ids, Request, SamplingParams
from offramp.engine.cost import WINDOW, MeasuredCosts
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.engine import Engine
from offramp.engine.measure import Check
from offramp.errors import ResourceError
from offramp.llm import costs as costs_module
from offramp.llm.costs import fill_costs, load_costs, refresh_costs
from offramp.llm.loading import LoadedModel
from offramp.model.executor import LayerExecutor
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
    monkeypatch.setattr(costs_module, "check_costs", lambda executor, pages, table: Check(1.0, 0.0))
    return seen


@dataclass
class Machine:
    """In place of this one: its steps take `scale`, others keep it busy with `load`, or `rising` while measuring."""

    scale: float = 1.0
    load: float = 0.0
    rising: float | None = None
    num_measured: int = 0
    num_checked: int = 0

    def check(self, executor: LayerExecutor, pages: Ids, table: CostTable) -> Check:
        self.num_checked += 1
        return Check(max(table.layers.at(1) / self.scale, self.scale / table.layers.at(1)), self.load)

    def measure(self, executor: LayerExecutor, pages: Ids) -> CostTable:
        self.num_measured += 1
        curve, layers = Curve(((1, self.scale), (8, 2 * self.scale))), executor.config.num_layers
        load = self.load if self.rising is None else self.rising
        return CostTable(num_layers=layers, context=32, call=0.0, layers=curve, per_token=curve, head=curve, load=load)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(costs_module, "check_costs", made.check)
    monkeypatch.setattr(costs_module, "measure_costs", made.measure)
    return made


def found(costs: MeasuredCosts) -> tuple[float, float]:
    """What a table says of one row, and the load it was measured at."""
    assert costs.table is not None
    return costs.table.layers.at(1), costs.table.load


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


def test_costs_of_a_busy_moment_last_until_the_first_quiet_one(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.load, machine.scale = 0.8, 3.0
    with caplog.at_level(logging.INFO, "offramp"):
        assert found(load_costs(native_model(), tmp_path)) == (3.0, 0.8)
        assert caplog.text.count("kept the machine busy") == 1
        assert found(load_costs(native_model(), tmp_path)) == (3.0, 0.8)  # still busy: not measured for nothing
        assert (machine.num_checked, machine.num_measured) == (1, 1)
        machine.load, machine.scale = 0.0, 1.0
        assert found(load_costs(native_model(), tmp_path)) == (1.0, 0.0)
        assert found(load_costs(native_model(), tmp_path)) == (1.0, 0.0)
    assert machine.num_measured == 2
    assert caplog.text.count("kept the machine busy") == 1


@pytest.mark.parametrize("truth", [1.0, 1.2, 0.85, 3.5, 1 / 3.5])
def test_a_kept_table_that_a_quiet_machine_contradicts_is_measured_anew(
    tmp_path: Path, machine: Machine, truth: float
) -> None:
    load_costs(native_model(), tmp_path)
    machine.scale = truth
    right = truth in (1.0, 1.2, 0.85)
    for _ in range(2):
        assert found(load_costs(native_model(), tmp_path)) == (1.0 if right else truth, 0.0)
    assert machine.num_measured == (1 if right else 2)


def test_a_busy_machine_contradicts_no_quiet_table(tmp_path: Path, machine: Machine) -> None:
    load_costs(native_model(), tmp_path)
    machine.load, machine.scale = 0.8, 3.5
    assert found(load_costs(native_model(), tmp_path)) == (1.0, 0.0)
    assert (machine.num_checked, machine.num_measured) == (1, 1)


def test_what_turns_busy_while_it_is_measured_takes_no_quiet_tables_place(tmp_path: Path, machine: Machine) -> None:
    load_costs(native_model(), tmp_path)
    machine.scale, machine.rising = 3.5, 0.8
    assert found(load_costs(native_model(), tmp_path)) == (3.5, 0.8)  # of two that are in doubt, the later one
    machine.scale, machine.rising = 1.0, None
    assert found(load_costs(native_model(), tmp_path)) == (1.0, 0.0)
    assert machine.num_measured == 2


def refreshable(tmp_path: Path) -> tuple[MeasuredCosts, LoadedModel, Engine]:
    model = native_model()
    costs = load_costs(model, tmp_path)
    return costs, model, Engine(model.executor, max_context=128)


def test_costs_of_a_busy_moment_are_measured_anew_in_the_same_process(tmp_path: Path, machine: Machine) -> None:
    machine.load, machine.scale = 0.8, 3.0
    costs, model, engine = refreshable(tmp_path)
    assert not refresh_costs(costs, model, engine, tmp_path)
    machine.load, machine.scale = 0.05, 1.0
    assert refresh_costs(costs, model, engine, tmp_path)
    assert found(costs) == found(load_costs(native_model(), tmp_path)) == (1.0, 0.05)
    assert not refresh_costs(costs, model, engine, tmp_path)


def test_stale_costs_of_a_quiet_moment_stay_while_others_are_busy(tmp_path: Path, machine: Machine) -> None:
    costs, model, engine = refreshable(tmp_path)
    for _ in range(WINDOW):
        costs.observe(1, 2, 0, 1e3)
    machine.load, machine.scale = 0.8, 3.0
    assert not refresh_costs(costs, model, engine, tmp_path)
    machine.load, machine.rising = 0.0, 0.8
    assert not refresh_costs(costs, model, engine, tmp_path)  # it turned busy on the way
    assert (machine.num_measured, found(costs)) == (2, (1.0, 0.0))
    machine.rising = None
    assert refresh_costs(costs, model, engine, tmp_path)
    assert found(costs) == found(load_costs(native_model(), tmp_path)) == (3.0, 0.0)


def test_contradicted_costs_beside_requests_do_until_pages_are_free(tmp_path: Path, machine: Machine) -> None:
    costs, model, engine = refreshable(tmp_path)
    machine.scale = 3.5
    for num_left, checked in ((2, 1), (0, 1)):
        with engine.lend_pages(model.executor.num_pages - num_left):
            fill_costs(costs, model, engine, tmp_path)
        assert (found(costs), machine.num_checked) == ((1.0, 0.0), checked)
    fill_costs(costs, model, engine, tmp_path)
    assert found(costs) == (3.5, 0.0)
