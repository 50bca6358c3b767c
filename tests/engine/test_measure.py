"""Timing an executor by a scripted clock: what is measured is what the script charges, within the box, on given pages.

The scripted model below checks that every slot read was written for its position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Ids, Rows
from offramp.engine.contention import Usage, load_between
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.measure import (
    CHECK_PAGES,
    CHECK_ROWS,
    CHECK_SECONDS,
    LEAST_PAGES,
    LONG_ROW_COUNTS,
    PROBE_PAGES,
    ROW_COUNTS,
    check_costs,
    measure_costs,
)
from offramp.model.executor import FINAL, HeadId, Hidden
from offramp.model.hidden import ArrayHidden
from offramp.testing.scripted import ScriptedModel

LAYERS = 3
CALL, LAYER, PER_ROW, PER_TOKEN, HEAD = 1e-4, 1e-3, 2e-4, 1e-6, 5e-4


class Charging(ScriptedModel):
    """Moves its clock by a known price for each call; `factor` may make some moments dearer."""

    def __init__(
        self, num_pages: int, *, scale: float = 1.0, factor: Callable[[int], float] = lambda call: 1.0
    ) -> None:
        super().__init__(
            lambda history, depth: np.zeros(8, np.float32), num_pages=num_pages, num_layers=LAYERS, vocab_size=8
        )
        self.now = 0.0
        self.calls = 0
        self.pages: set[int] = set()
        self._scale, self._factor = scale, factor

    def charge(self, seconds: float) -> None:
        self.calls += 1
        self.now += self._scale * seconds * self._factor(self.calls)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        context = int(rows.positions[0])
        self.pages |= set(rows.page_ids.tolist())
        self.charge(CALL + (stop - start) * (LAYER + len(rows) * (PER_ROW + PER_TOKEN * context)))
        return super().run_layers(h, rows, start, stop)

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        self.pages |= set(rows.page_ids.tolist())
        self.charge(1e-4 * (stop - start))
        super().fill(h, rows, start, stop)

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> np.ndarray:  # type: ignore[type-arg]
        self.charge(HEAD * len(h))
        return np.zeros((len(h), 8), np.float32)

    def clock(self) -> float:
        return self.now


def price(rows: int, layers: int, context: int) -> float:
    return CALL + layers * (LAYER + rows * (PER_ROW + PER_TOKEN * context)) + HEAD * rows


def pages(count: int) -> Ids:
    return np.arange(count, dtype=np.int32)


def test_the_table_predicts_what_the_executor_charges() -> None:
    model = Charging(PROBE_PAGES)
    table = measure_costs(model, pages(PROBE_PAGES), clock=model.clock)
    assert table.most_rows == ROW_COUNTS[-1]
    for rows in (1, 2, 5, 10, 40, 64, 100):
        for layers in (1, 2, LAYERS):
            for context in (32, 500, 1024, 4000):
                assert table.seconds(rows, layers, context, rows) == pytest.approx(
                    price(rows, layers, context), rel=0.02
                )


def test_a_neighbours_bursts_do_not_count() -> None:
    model = Charging(PROBE_PAGES, factor=lambda call: 10.0 if call % 7 == 0 else 1.0)
    table = measure_costs(model, pages(PROBE_PAGES), box_seconds=4.0, clock=model.clock)
    for rows in (1, 4, 16):
        assert table.seconds(rows, LAYERS, 32, rows) == pytest.approx(price(rows, LAYERS, 32), rel=0.02)


def test_one_quiet_round_of_all_is_enough() -> None:
    count = Charging(PROBE_PAGES, scale=0.01)
    measure_costs(count, pages(PROBE_PAGES), clock=count.clock)
    calls_a_round = 2 * len(ROW_COUNTS) + len(LONG_ROW_COUNTS) + LAYERS
    last = count.calls - calls_a_round
    model = Charging(PROBE_PAGES, scale=0.05, factor=lambda call: 1.0 if call > last else 4.0)
    table = measure_costs(model, pages(PROBE_PAGES), clock=model.clock)
    for rows in (1, 4, 16):
        assert table.seconds(rows, LAYERS, 32, rows) == pytest.approx(0.05 * price(rows, LAYERS, 32), rel=0.02)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 10.0, 30.0])
def test_the_box_holds_and_a_slow_model_gets_fewer_row_counts(scale: float) -> None:
    model = Charging(PROBE_PAGES, scale=scale)
    table = measure_costs(model, pages(PROBE_PAGES), clock=model.clock)
    assert model.now <= 2.0
    assert (table.most_rows == ROW_COUNTS[-1]) == (scale <= 1)
    assert table.seconds(1, LAYERS, 32, 1) == pytest.approx(scale * price(1, LAYERS, 32), rel=0.02)


def test_one_row_is_timed_however_long_it_takes() -> None:
    model = Charging(PROBE_PAGES, scale=5000.0)
    table = measure_costs(model, pages(PROBE_PAGES), clock=model.clock)
    assert table.most_rows == 1
    assert table.seconds(1, LAYERS, 32, 1) == pytest.approx(5000 * price(1, LAYERS, 32))
    assert model.calls == 4  # to fetch the weights, one page of context, layers, head


def test_only_the_given_pages_are_touched() -> None:
    model = Charging(PROBE_PAGES + 20)
    given = np.arange(7, 7 + 6, dtype=np.int32)[::-1].copy()
    table = measure_costs(model, given, box_seconds=0.3, clock=model.clock)
    assert model.pages == set(given.tolist())
    assert table.per_token.at(1) == pytest.approx(LAYERS * PER_TOKEN, rel=0.02)


@pytest.mark.parametrize("num_pages", [LEAST_PAGES, LEAST_PAGES + 1])
def test_few_pages_still_do(num_pages: int) -> None:
    model = Charging(num_pages)
    table = measure_costs(model, pages(num_pages), box_seconds=0.5, clock=model.clock)
    assert table.seconds(4, LAYERS, 32, 4) == pytest.approx(price(4, LAYERS, 32), rel=0.02)


def test_too_few_pages_are_our_bug() -> None:
    model = Charging(LEAST_PAGES)
    with pytest.raises(AssertionError, match="too few pages"):
        measure_costs(model, pages(LEAST_PAGES - 1), clock=model.clock)


NEAR = 0.08
"""A check has no context, and a table begins with a page of it."""


def measured(scale: float = 1.0) -> CostTable:
    model = Charging(PROBE_PAGES, scale=scale)
    return measure_costs(model, pages(PROBE_PAGES), clock=model.clock)


@pytest.mark.parametrize("times", [0.25, 1.0, 3.5])
def test_a_check_says_how_far_off_a_table_is(times: float) -> None:
    model = Charging(CHECK_PAGES, scale=times)
    off = check_costs(model, pages(CHECK_PAGES), measured(), clock=model.clock).off
    assert off == pytest.approx(max(times, 1 / times), rel=NEAR)
    longest = times * price(CHECK_ROWS[-1], LAYERS, 0)
    assert model.now <= CHECK_SECONDS + 2 * longest


def test_a_check_finds_a_wrong_shape_behind_a_right_size() -> None:
    right = measured()
    heavy = replace(
        right, head=Curve(tuple((n, s + (n > 3) * 3 * right.seconds(1, LAYERS, 0, 1)) for n, s in right.head.points))
    )
    model = Charging(CHECK_PAGES)
    assert heavy.seconds(1, LAYERS, 0, 1) == right.seconds(1, LAYERS, 0, 1)
    assert check_costs(model, pages(CHECK_PAGES), heavy, clock=model.clock).off > 2


def test_a_neighbours_burst_contradicts_nothing() -> None:
    model = Charging(CHECK_PAGES, factor=lambda call: 5.0 if call in (3, 4, 6) else 1.0)
    check = check_costs(model, pages(CHECK_PAGES), measured(), box_seconds=0.3, clock=model.clock)
    assert check.off == pytest.approx(1.0, rel=NEAR)


def test_a_difference_too_small_to_matter_is_none() -> None:
    model = Charging(CHECK_PAGES, scale=0.02)
    assert check_costs(model, pages(CHECK_PAGES), measured(0.01), clock=model.clock).off == 1.0


def test_a_model_too_slow_to_be_timed_twice_is_not_judged() -> None:
    model = Charging(CHECK_PAGES, scale=20.0)
    assert check_costs(model, pages(CHECK_PAGES), measured(), clock=model.clock).off == 1.0
    assert model.calls == 4  # to fetch the weights and once: layers, head


def test_the_load_is_that_of_the_timed_calls_without_fetching_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Charging(PROBE_PAGES, factor=lambda call: 1000.0 if call == 1 else 1.0)
    slow_start = 1000 * (CALL + LAYERS * (LAYER + PER_ROW))

    def usage() -> Usage:
        """Others take half of each CPU, and all of it while weights are fetched."""
        busy = model.now + min(model.now, slow_start)
        return Usage(now=model.now, own=0.0, thread=model.now, busy=busy, waited={}, num_cpus=2, tick=0.0)

    monkeypatch.setattr("offramp.engine.measure.load_between", load_between)
    table = measure_costs(model, pages(PROBE_PAGES), box_seconds=6.0, clock=model.clock, usage=usage)
    assert table.load == pytest.approx(0.5)
    again = Charging(CHECK_PAGES, factor=lambda call: 1000.0 if call <= 2 else 1.0)
    model = again
    slow_start += 1000 * HEAD
    assert check_costs(again, pages(CHECK_PAGES), table, clock=again.clock, usage=usage).load == pytest.approx(0.5)


def test_the_long_rows_are_among_the_short_ones() -> None:
    assert set(LONG_ROW_COUNTS) <= set(ROW_COUNTS)
