"""Predictions from measured numbers: exact at what was measured, rising everywhere, damaged files refused."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.engine.cost_file import cost_path, read_costs, write_costs
from offramp.engine.cost_table import CostTable, Curve

TABLE = CostTable(
    num_layers=10,
    context=32,
    call=0.5,
    layers=Curve(((1, 10.0), (4, 13.0), (8, 21.0))),
    per_token=Curve(((1, 0.01), (4, 0.04))),
    head=Curve(((1, 2.0), (8, 9.0))),
)


def test_a_curve_is_exact_at_its_points_linear_between_and_goes_on() -> None:
    assert [TABLE.layers.at(n) for n in (0, 1, 3, 4, 6, 8, 10)] == [0.0, 10.0, 12.0, 13.0, 17.0, 21.0, 25.0]


def test_one_point_goes_on_in_proportion() -> None:
    assert Curve(((4, 8.0),)).at(1) == 8.0
    assert Curve(((4, 8.0),)).at(10) == 20.0


def test_noise_in_the_wrong_order_becomes_its_mean() -> None:
    assert Curve.fit([(1, 5.0), (2, 4.0), (3, 6.0)]).points == ((1, 4.5), (2, 4.5), (3, 6.0))
    assert Curve.fit([(3, 1.0), (2, 2.0), (1, 6.0)]).points == ((1, 3.0), (2, 3.0), (3, 3.0))
    assert Curve.fit([(1, -1.0), (2, 4.0)]).points == ((1, 0.0), (2, 4.0))


@pytest.mark.parametrize(
    "points", [(), ((0, 1.0),), ((2, 1.0), (2, 2.0)), ((1, 2.0), (2, 1.0)), ((1, float("nan")),), ((1, -1.0),)]
)
def test_a_curve_that_falls_or_is_no_number_is_refused(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match=r"row counts|values"):
        Curve(points)


times = st.lists(st.floats(0, 1e3), min_size=1, max_size=8)


@given(times, times, times, st.integers(0, 100), st.integers(0, 9), st.integers(0, 5000))
def test_predictions_never_fall(a: list[float], b: list[float], c: list[float], rows: int, deep: int, ctx: int) -> None:
    layers, per_token, head = (Curve.fit((2 * i + 1, value) for i, value in enumerate(values)) for values in (a, b, c))
    table = CostTable(num_layers=10, context=32, call=1.0, layers=layers, per_token=per_token, head=head)
    here = table.seconds(rows, deep, ctx, rows) * (1 - 1e-9)
    assert here <= table.seconds(rows + 1, deep, ctx, rows + 1)
    assert here <= table.seconds(rows, deep + 1, ctx, rows)
    assert here <= table.seconds(rows, deep, ctx + 1, rows)


def test_a_call_is_its_layers_its_context_and_its_head() -> None:
    assert TABLE.seconds(4, 10, 32, 0) == 13.5
    assert TABLE.seconds(4, 5, 0, 0) == 7.0
    assert TABLE.seconds(4, 10, 132, 0) == pytest.approx(17.5)
    assert TABLE.seconds(4, 10, 32, 1) == 15.5
    assert TABLE.seconds(8, 0, 0, 8) == 9.0


@pytest.mark.parametrize(
    ("load", "contended", "quiet_enough", "too_busy"),
    [(0.0, False, 0.1, 0.11), (0.15, True, 0.1, 0.11), (0.8, True, 0.4, 0.41)],
)
def test_what_is_measured_on_a_busy_machine_is_outdone_at_half_its_load(
    load: float, contended: bool, quiet_enough: float, too_busy: float
) -> None:
    table = replace(TABLE, load=load)
    assert table.contended is contended
    assert table.outdone_at(quiet_enough)
    assert not table.outdone_at(too_busy)


def test_a_file_brings_the_table_back(tmp_path: Path) -> None:
    path = cost_path(tmp_path / "costs", {"threads": 2})
    assert read_costs(path) is None
    write_costs(path, TABLE)
    assert read_costs(path) == TABLE
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    busy = replace(TABLE, load=0.75)
    write_costs(path, busy)
    assert read_costs(path) == busy


def test_other_circumstances_are_another_file(tmp_path: Path) -> None:
    assert cost_path(tmp_path, {"threads": 2, "kv": "f16"}) == cost_path(tmp_path, {"kv": "f16", "threads": 2})
    assert cost_path(tmp_path, {"threads": 2}) != cost_path(tmp_path, {"threads": 3})


@pytest.mark.parametrize("change", ["cut", "[]", '{"layers": 3}', "NaN", "inf", "fall", "no load", "less", "\xff"])
def test_a_damaged_file_is_measured_anew_and_the_log_says_so(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "table.json"
    write_costs(path, TABLE)
    good = path.read_text()
    fields = json.loads(good)
    texts = {
        "cut": good[: len(good) // 2],
        "NaN": json.dumps({**fields, "call": float("nan")}),
        "inf": json.dumps({**fields, "num_layers": float("inf")}),
        "no load": json.dumps({name: value for name, value in fields.items() if name != "load"}),
        "less": json.dumps({**fields, "load": -1.0}),
        "fall": json.dumps({**fields, "head": [[1, 2.0], [2, 1.0]]}),
    }
    path.write_text(texts.get(change, change), encoding="latin-1")
    with caplog.at_level(logging.WARNING, "offramp"):
        assert read_costs(path) is None
    assert "measuring anew" in caplog.text


def test_a_folder_that_cant_be_written_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "costs").write_text("a file")
    with caplog.at_level(logging.WARNING, "offramp"):
        write_costs(tmp_path / "costs" / "table.json", TABLE)
    assert "can't be kept" in caplog.text
