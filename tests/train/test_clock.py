"""Budgets of computing: time in which the process stood still does not count."""

from __future__ import annotations

import time

import pytest

from offramp.train.clock import Budget, ComputeClock


def test_the_clock_counts_processor_time_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "process_time", lambda: now)
    clock = ComputeClock(threads=2, before=5.0)
    assert clock.seconds == 5.0
    now = 130.0
    assert clock.seconds == 20.0


def test_sleeping_is_free() -> None:
    clock = ComputeClock(threads=1)
    time.sleep(0.1)
    assert clock.seconds < 0.05


def test_a_budget_ends_at_what_comes_first() -> None:
    assert Budget(steps=10).progress(5, 1e9) == 0.5
    assert Budget(minutes=2).progress(10**9, 60) == 0.5
    assert Budget(steps=10, minutes=1).progress(9, 60) == 1.0
    with pytest.raises(AssertionError):
        Budget()
