"""The promise on really generated answers: what is certified keeps its risk on fresh prompts, in most calibrations.

Each run has prompts of its own; the truth is the mean loss on many others. A control whose losses are measured wrongly
breaks it.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from offramp.calibrate.recipe import Recipe
from offramp.calibrate.run import calibrate
from offramp.exits.frozen import FrozenPolicy
from tests.calibrate.flattering import flatter
from tests.calibrate.settling import COSTS, GREEDY, prompts, settling_model, stage
from tests.calibrate.test_run import losses_under

RUNS, DELTA, RISK = 24, 0.1, 0.15
MOST = 8
HOW = Recipe(risks=(RISK,), delta=DELTA, params=GREEDY)
LOADED = cache(lambda: settling_model(0.3))


def test_the_number_of_runs_that_may_exceed_the_risk() -> None:
    def at_most(k: int) -> float:
        return sum(math.comb(RUNS, i) * DELTA**i * (1 - DELTA) ** (RUNS - i) for i in range(k + 1))

    assert at_most(MOST - 1) < 0.999 <= at_most(MOST)


def certified(run: int) -> FrozenPolicy | None:
    """By a calibration on prompts of this run's own."""
    [outcome] = calibrate(LOADED(), prompts(60, seed=100 + run, longest=20), HOW, stage, costs=COSTS).outcomes
    return None if outcome.chosen is None else outcome.chosen.policy


def true_loss(policy: FrozenPolicy) -> float:
    return float(losses_under(LOADED(), policy, prompts(600, seed=1, longest=20), HOW).mean())


@pytest.mark.slow
def test_a_certified_risk_is_kept_on_fresh_prompts() -> None:
    policies = [policy for run in range(RUNS) if (policy := certified(run)) is not None]
    assert len(policies) > RUNS / 2, "the bound would hold if nothing were ever certified"
    assert sum(true_loss(policy) > RISK for policy in policies) <= MOST


@pytest.mark.slow
def test_losses_that_are_measured_wrongly_break_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    flatter(monkeypatch)
    policies = [policy for run in range(RUNS) if (policy := certified(run)) is not None]
    monkeypatch.undo()
    assert sum(true_loss(policy) > RISK for policy in policies) > MOST
