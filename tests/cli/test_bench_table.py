"""The tables of `offramp bench run`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp.bench.results.cells import Interval
from offramp.cli.bench_table import print_cells
from tests.bench.report.made import cell


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_cells([replace(cell("plain"), workload="mine[val]", quality={"a[/b]": Interval(0.5, 0.4, 0.6)})])
    told = capsys.readouterr().err
    assert "mine[val], 1 stream: speed" in told
    assert "a[/b]" in told


def test_a_single_measurement_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    print_cells([cell("auto", decode_ratio=Interval(1.5, 1.5, 1.5), total_ratio=Interval(1.25, 1.2, 1.3))])
    told = capsys.readouterr().err
    assert "1.50" in told
    assert "1.50-1.50" not in told
    assert "1.25 (1.20-1.30)" in told


def test_a_promise_that_was_kept_by_losing_nothing_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    print_cells([cell("plain"), cell("calibrated", note="no policy is faster")])
    told = capsys.readouterr().err
    assert "calibrated, risk 0.05 (ran as mode full)" in told
    assert told.count("ran as mode full") == 1
