"""Drift is told where there is drift; a budget holds in every span of time."""

from __future__ import annotations

import numpy as np

from offramp.collaborate.pipeline.budget import CallBudget
from offramp.collaborate.pipeline.drift import LEAST, WINDOW, ShareWatch


def test_a_share_is_that_of_the_latest_requests() -> None:
    watch = ShareWatch(0.5)
    assert watch.achieved is None
    for called in [True] * WINDOW + [False] * (WINDOW // 2):
        watch.note(called)
    assert watch.achieved == 0.5


def test_the_calibrated_share_is_no_drift(rng: np.random.Generator) -> None:
    """At most 1 of 50 watches of 1000 requests each tells of drift by chance."""
    told = 0
    for _ in range(50):
        watch = ShareWatch(0.3)
        alarms = []
        for called in rng.random(1000) < 0.3:
            watch.note(bool(called))
            alarms.append(watch.news())
        told += any(alarms)
    assert told <= 3


def test_another_share_is_told_of_once_until_it_is_over(rng: np.random.Generator) -> None:
    watch = ShareWatch(0.3)
    news = 0
    for called in rng.random(600) < 0.6:
        watch.note(bool(called))
        news += watch.news()
    assert (news, watch.drifted) == (1, True)
    for called in rng.random(600) < 0.3:
        watch.note(bool(called))
        news += watch.news()
    assert not watch.drifted
    assert news == 1


def test_few_requests_and_no_calibration_say_nothing() -> None:
    few, free = ShareWatch(0.0), ShareWatch(None)
    for _ in range(LEAST - 1):
        few.note(True)
        free.note(True)
    free.note(True)
    assert not few.drifted
    assert not free.drifted
    few.note(True)
    assert few.drifted


def test_a_budget_holds_in_any_span() -> None:
    now = [0.0]
    budget = CallBudget(2, 10.0, clock=lambda: now[0])
    taken = []
    for second in range(25):
        now[0] = float(second)
        if budget.take():
            taken.append(second)
    assert taken == [0, 1, 10, 11, 20, 21]
    assert budget.wait_seconds == 6.0


def test_a_budget_of_none_is_none_and_without_bound_there_is_none() -> None:
    none, free = CallBudget(0, 10.0), CallBudget(None, 10.0)
    assert not none.take()
    assert none.wait_seconds == 10.0
    assert all(free.take() for _ in range(1000))
    assert free.left is None
