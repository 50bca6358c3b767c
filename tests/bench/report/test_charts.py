"""Where things are drawn: scales, ticks, bars, labels."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.bench.report.charts.columns import Column, columns
from offramp.bench.report.charts.costs import cost_fit
from offramp.bench.report.charts.drawing import LETTER, Scale, inner_ticks, mark, ticks
from offramp.bench.report.charts.labels import Box, Label, place_labels
from offramp.bench.report.charts.ratios import Row, ratio_panel, ratio_scale
from offramp.bench.report.charts.strip import depth_strip, draft_strip, shade
from offramp.bench.report.charts.tradeoff import Point, Quality, tradeoff
from offramp.bench.report.figures import change
from offramp.bench.results.cells import Interval
from offramp.bench.results.lines import CostLine
from tests.bench.report.made import around, costs

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@given(NUMBERS, st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_hold_all_and_are_few(low: float, span: float, most: int) -> None:
    high = low + span
    found = ticks(low, high, most)
    room = 1e-6 * max(abs(low), abs(high), span)
    assert found[0] <= low + room
    assert found[-1] >= high - room
    assert 2 <= len(found) <= most + 3
    assert sorted(set(found)) == found
    assert all(low <= tick <= high for tick in inner_ticks(low, high, most))


def test_ticks_are_round() -> None:
    assert ticks(0.93, 2.2, 5) == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert ticks(5.0, 5.0) == [5.0, 6.0]
    assert inner_ticks(0.93, 2.2, 5) == [1.0, 1.5, 2.0]


def test_scales() -> None:
    scale = Scale(0.0, 10.0, 100.0, 200.0)
    assert [scale.at(value) for value in (0, 5, 10, 99, -1)] == [100, 150, 200, 200, 100]
    assert [scale.holds(value) for value in (0, 10, 10.1)] == [True, True, False]
    assert Scale(1.0, 100.0, 0.0, 2.0, logarithmic=True).at(10.0) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", ["circle", "ring", "diamond", "triangle", "square"])
def test_every_shape_is_drawn_with_its_tip(shape: str) -> None:
    assert drawn(mark(shape, 5, 5, tip="a & b")).findtext("title") == "a & b"


def test_bars_begin_at_one() -> None:
    rows = [
        Row(name="fast", exactness="lossless", ratio=Interval(1.5, 1.4, 1.6)),
        Row(name="slow", exactness="unchecked", ratio=Interval(0.8, 0.7, 0.9)),
        Row(name="none", exactness="lossless", ratio=None, why="it crashed"),
    ]
    scale = ratio_scale(rows)
    chart = drawn(ratio_panel(rows, scale, "t"))
    fast, slow = [each for each in chart.iter("rect") if "bar" in each.get("class", "")]
    assert float(fast.get("x", "")) == pytest.approx(scale.at(1.0), abs=0.01)
    assert float(fast.get("width", "")) == pytest.approx(scale.at(1.5) - scale.at(1.0), abs=0.02)
    assert float(slow.get("x", "")) + float(slow.get("width", "")) == pytest.approx(scale.at(1.0), abs=0.02)
    assert "slower" in slow.get("class", "")
    assert "none (lossless): it crashed" in (chart.findtext("desc") or "")
    texts = [each.text for each in chart.iter("text")]
    assert {"1.50", "0.80", "—"} <= set(texts)


def test_a_wild_interval_does_not_flatten_the_others() -> None:
    rows = [Row(name="a", exactness=None, ratio=Interval(1.5, 0.1, 900.0))]
    scale = ratio_scale(rows)
    assert scale.high < 4
    assert "900.00" in ratio_panel(rows, scale, "t"), "its numbers are told"


def test_a_method_is_marked_by_shape() -> None:
    points = [
        Point(name="a", exactness="lossless", speed=around(1.2), quality=Interval(0, 0, 0)),
        Point(name="b", exactness="unchecked", speed=around(1.9), quality=Interval(-0.1, -0.2, 0)),
    ]
    quality = Quality(name="change of q", plain=0.0, write=change)
    wide, narrow = re.findall(r"<svg.*?</svg>", tradeoff(points, quality, "t"), re.DOTALL)
    for svg in (wide, narrow):
        kinds = [each.get("class") for each in drawn(svg).iter() if "mark" in (each.get("class") or "")]
        assert kinds == ["mark circle", "mark triangle"]
        assert "b (unchecked): 1.90 (1.79 to 2.01) times plain" in svg


@pytest.mark.parametrize("less", [False, True])
def test_better_is_upwards(less: bool) -> None:
    points = [
        Point(name=name, exactness="lossless", speed=around(1.2), quality=Interval(value, value, value))
        for name, value in (("low", -0.1), ("high", 0.1))
    ]
    quality = Quality(name="q", plain=0.0, write=change, less_is_better=less)
    svg = re.findall(r"<svg.*?</svg>", tradeoff(points, quality, "t"), re.DOTALL)[0]
    low, high = [float(each.get("cy", "")) for each in drawn(svg).iter("circle")]
    assert (low < high) == less


@given(st.lists(st.tuples(st.floats(80, 600), st.floats(40, 300)), min_size=1, max_size=12))
def test_labels_keep_apart(points: list[tuple[float, float]]) -> None:
    names = [f"method-{number}" for number in range(len(points))]
    labels = place_labels(points, names, [], Box(0, 0, 720, 360))
    assert [label.text for label in labels] == names
    boxes = [_box(label) for label in labels]
    assert sum(one.meets(two) for one, two in combinations(boxes, 2)) == 0


def test_labels_go_round_whiskers() -> None:
    whisker = Box(50, 80, 150, 95)
    [label] = place_labels([(100.0, 100.0)], ["name"], [whisker], Box(0, 0, 200, 200))
    assert not _box(label).meets(whisker)


def _box(label: Label) -> Box:
    half = LETTER * len(label.text) / 2
    return Box(label.x - half, label.y - 10, label.x + half, label.y + 2)


def test_columns_are_as_high_as_their_shares() -> None:
    bars = [Column("1", 0.8, "a"), Column("2", 0.4, "b")]
    one, two = [
        float(each.get("height", "")) for each in drawn(columns(bars, title="t", x_label="x", whole=True)).iter("rect")
    ]
    assert one == pytest.approx(2 * two, rel=0.01)


def test_many_columns_name_some() -> None:
    bars = [Column(str(number), 0.5, "tip") for number in range(60)]
    chart = drawn(columns(bars, title="t", x_label="x", whole=True))
    assert len(list(chart.iter("rect"))) == 60
    assert len(list(chart.iter("text"))) < 25


def test_a_perfect_prediction_lies_on_the_line() -> None:
    chart = drawn(cost_fit([*costs(), CostLine(rows=64, context=8, measured_ms=200.0, predicted_ms=200.0)]))
    circles = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in chart.iter("circle")]
    [line] = [each for each in chart.iter("line") if each.get("class") == "one"]
    x1, y1, x2, y2 = (float(line.get(name, "")) for name in ("x1", "y1", "x2", "y2"))
    x, y = circles[-1]
    assert (y - y1) / (y2 - y1) == pytest.approx((x - x1) / (x2 - x1), abs=0.01)
    x, y = circles[-2]
    assert (y - y1) / (y2 - y1) > (x - x1) / (x2 - x1) + 0.02, "predicted 20 % too high"


def test_one_step_alone_can_be_drawn() -> None:
    drawn(cost_fit([CostLine(rows=1, context=8, measured_ms=5.0, predicted_ms=5.0)]))


def test_strips_tell_by_height() -> None:
    heights = [float(each.get("height", "")) for each in drawn(depth_strip((10, 20), 20)).iter("rect")]
    assert heights == [20.0, 40.0]
    own, drafted = drawn(draft_strip((False, True))).iter("rect")
    assert float(own.get("height", "")) > float(drafted.get("height", ""))


def test_shades() -> None:
    assert [shade(layers, 2, 30) for layers in (2, 16, 30)] == [0, 4, 7]
    assert shade(30, 30, 30) == 7
