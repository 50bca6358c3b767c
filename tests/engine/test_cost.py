"""When reality corrects the table, when it makes it stale, and what the engine tells."""

from __future__ import annotations

import pytest

from offramp.core import Request, SamplingParams
from offramp.engine.cost import ENOUGH, WINDOW, MeasuredCosts
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.engine import Engine
from offramp.testing.running import drain, run
from offramp.testing.scripted import ScriptedModel, mixing


def table(scale: float = 1.0, load: float = 0.0) -> CostTable:
    curve = Curve(((1, 10.0 * scale), (8, 20.0 * scale)))
    return CostTable(num_layers=2, context=32, call=0.0, layers=curve, per_token=curve, head=curve, load=load)


def observe(costs: MeasuredCosts, ratio: float, times: int) -> None:
    for _ in range(times):
        costs.observe(1, 2, 0, 20.0 * ratio)


def test_the_head_counts_all_rows_unless_said_otherwise() -> None:
    costs = MeasuredCosts(table())
    assert costs.seconds(8, 2, 0) == 40.0
    assert costs.seconds(8, 2, 0, num_head_rows=1) == 30.0
    assert costs.seconds(8, 0, 0) == costs.seconds(8, 2, 0, num_head_rows=0) == 20.0


def test_few_observations_change_nothing_enough_correct() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 1.5, ENOUGH - 1)
    assert (costs.correction(1), costs.stale) == (1.0, False)
    observe(costs, 1.5, 1)
    assert (costs.correction(1), costs.stale) == (1.5, True)
    assert costs.seconds(1, 2, 0) == 30.0


@pytest.mark.parametrize(
    ("ratio", "stale"), [(1.19, False), (1.21, True), (1 / 1.19, False), (1 / 1.21, True), (0, True)]
)
def test_stale_is_more_than_twenty_per_cent_either_way(ratio: float, stale: bool) -> None:
    costs = MeasuredCosts(table())
    observe(costs, ratio, WINDOW)
    assert costs.stale is stale


def test_a_burst_that_is_less_than_half_of_the_window_moves_nothing() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 1.0, WINDOW)
    observe(costs, 50.0, WINDOW // 2 - 1)
    assert (costs.correction(1), costs.stale) == (1.0, False)
    observe(costs, 50.0, 2)
    assert costs.stale


def test_staleness_ends_below_ten_per_cent_not_at_twenty() -> None:
    costs = MeasuredCosts(table())
    for ratio, stale in [(1.15, False), (1.3, True), (1.15, True), (1.05, False), (1.15, False)]:
        observe(costs, ratio, WINDOW)
        assert costs.stale is stale, ratio


def test_one_band_that_is_off_is_enough() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 1.0, WINDOW)
    for _ in range(ENOUGH):
        costs.observe(4, 2, 0, costs.seconds(4, 2, 0) / 1.3)
    assert costs.stale


def test_a_table_of_a_busy_moment_is_in_doubt_before_any_step() -> None:
    assert not MeasuredCosts().doubtful
    assert not MeasuredCosts(table(load=0.1)).doubtful
    costs = MeasuredCosts(table(load=0.11))
    assert (costs.doubtful, costs.stale) == (True, False)
    costs.replace(table())
    assert not costs.doubtful
    observe(costs, 2.0, ENOUGH)
    assert costs.doubtful


def test_more_rows_than_measured_teach_nothing() -> None:
    costs = MeasuredCosts(table())
    for _ in range(WINDOW):
        costs.observe(9, 2, 0, 1e9)
    assert (costs.correction(1), costs.stale) == (1.0, False)


def test_each_band_of_rows_is_corrected_by_itself_and_unseen_ones_by_their_neighbour() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 1.1, WINDOW)
    for _ in range(ENOUGH):
        costs.observe(4, 2, 0, 2 * costs.table.seconds(4, 2, 0, 4) if costs.table else 0.0)
    assert [costs.correction(rows) for rows in (1, 2, 3, 4, 8)] == [1.1, 1.1, 2.0, 2.0, 2.0]


def test_more_rows_never_cost_less_whatever_was_learned() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 2.0, ENOUGH)
    for _ in range(ENOUGH):
        costs.observe(2, 2, 0, 1.0)
    predicted = [costs.seconds(rows, 2, 0) for rows in range(1, 9)]
    assert predicted == sorted(predicted)
    assert predicted[0] == 40.0


def test_a_new_table_starts_anew() -> None:
    costs = MeasuredCosts(table())
    observe(costs, 2.0, WINDOW)
    costs.replace(table(2.0))
    assert (costs.correction(1), costs.stale, costs.seconds(1, 2, 0)) == (1.0, False, 40.0)
    observe(costs, 2.0, ENOUGH)
    assert not costs.stale


class Heard:
    """A cost model that only listens."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int, int | None]] = []

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        raise AssertionError("nobody asks")

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        assert seconds > 0
        self.calls.append((num_rows, num_layers, context, num_head_rows))


def request(prompt: list[int], max_tokens: int, name: str = "r") -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Request(request_id=name, prompt_token_ids=prompt, params=params, seed=0)


def test_the_engine_tells_what_each_step_took() -> None:
    heard = Heard()
    engine = Engine(ScriptedModel(mixing(), num_pages=8), max_context=64, costs=heard)
    run(engine, [request([1] * 21, 3)])
    assert heard.calls == [(21, 2, 10, 1), (1, 2, 21, 1), (1, 2, 22, 1)]


def test_lent_pages_are_nobodys_and_come_back() -> None:
    engine = Engine(ScriptedModel(mixing(), num_pages=4), max_context=64)
    engine.add_request(request(list(range(40)), 4))
    engine.step()
    with engine.lend_pages(10) as pages:
        assert sorted(pages.tolist()) == [2, 3]
    engine.check_integrity()
    drain(engine)
    with engine.lend_pages(10, least=5) as pages:
        assert len(pages) == 0
    assert run(engine, [request(list(range(40)), 4, "again")])["again", 0].num_cached_tokens == 32
    with engine.lend_pages(10) as pages:  # the cached prefix is given up
        assert sorted(pages.tolist()) == [0, 1, 2, 3]
    engine.check_integrity()
    assert run(engine, [request(list(range(40)), 4)])["r", 0].num_cached_tokens == 0
