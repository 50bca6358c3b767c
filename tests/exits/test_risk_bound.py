"""The promise itself, on fresh simulated data: a certified setting's true mean loss exceeds the risk in few runs.

With delta = 0.05 a bound that holds is exceeded in more than 21 of 200 runs with a probability under 0.1 %. The
negative controls break the method on purpose and exceed it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from offramp.exits.calibration import fixed_sequence, hoeffding_bentkus_p
from offramp.exits.path import TuningTokens, threshold_path

RUNS, DELTA = 200, 0.05
MOST = 21

Draw = Callable[[float], np.ndarray]
"""True mean loss -> losses of the prompts of one run."""


def test_the_number_of_runs_that_may_exceed_the_risk() -> None:
    def at_most(k: int) -> float:
        return sum(math.comb(RUNS, i) * DELTA**i * (1 - DELTA) ** (RUNS - i) for i in range(k + 1))

    assert at_most(MOST - 1) < 0.999 <= at_most(MOST)


def all_or_nothing(rng: np.random.Generator, count: int) -> Draw:
    return lambda mean: (rng.random(count) < mean).astype(np.float64)


def shares(rng: np.random.Generator, count: int) -> Draw:
    """Of twenty tokens a prompt; some prompts are much worse than others."""
    return lambda mean: rng.binomial(20, np.minimum(1, mean * rng.exponential(1.0, count))) / 20


def num_exceeded(risk: float, run: Callable[[np.random.Generator], float | None]) -> int:
    """Runs whose certified setting truly loses more than the risk."""
    certified = [run(np.random.default_rng([11, seed])) for seed in range(RUNS)]
    return sum(mean is not None and mean > risk for mean in certified)


@pytest.mark.parametrize("law", [all_or_nothing, shares])
@pytest.mark.parametrize("count", [120, 500])
@pytest.mark.parametrize("risk", [0.05, 0.1])
def test_the_risk_is_kept(law: Callable[[np.random.Generator, int], Draw], count: int, risk: float) -> None:
    path = [risk * step for step in (0.1, 0.3, 1.0001, 1.0002, 1.01, 1.02, 1.05, 1.2, 1.5)]

    def run(rng: np.random.Generator) -> float | None:
        walk = fixed_sequence(path, law(rng, count), risk, DELTA)
        return walk.passed[-1].setting if walk.passed else None

    assert num_exceeded(risk, run) <= MOST


def test_it_certifies_what_is_safe() -> None:
    """The bound above would hold if nothing were ever certified."""

    def run(rng: np.random.Generator) -> float | None:
        walk = fixed_sequence([0.005, 0.015, 0.02], all_or_nothing(rng, 500), 0.05, DELTA)
        return walk.passed[-1].setting if walk.passed else None

    assert num_exceeded(0.019, run) > 180


def test_without_control_of_many_tests_the_risk_is_exceeded() -> None:
    """Any of forty settings that passes on its own is taken: a path that goes on after failures."""

    def run(rng: np.random.Generator) -> float | None:
        draw = all_or_nothing(rng, 400)
        tests = [hoeffding_bentkus_p(draw(0.0501).sum(), 400, 0.05) for _ in range(40)]
        return 0.0501 if min(tests) <= DELTA else None

    assert num_exceeded(0.05, run) > MOST


def test_a_path_chosen_on_the_calibration_prompts_exceeds_the_risk() -> None:
    """The same forty settings, sorted by the very losses that test them; sorted by others the risk is kept."""

    def runs(*, fresh: bool) -> int:
        def run(rng: np.random.Generator) -> float | None:
            draw = all_or_nothing(rng, 400)
            tuning = [draw(0.0501) for _ in range(40)]
            calibration = [draw(0.0501) for _ in range(40)] if fresh else tuning
            path = sorted(range(40), key=lambda setting: tuning[setting].sum())
            walk = fixed_sequence(path, lambda setting: calibration[setting], 0.05, DELTA)
            return 0.0501 if walk.passed else None

        return num_exceeded(0.05, run)

    assert runs(fresh=False) > MOST
    assert runs(fresh=True) <= MOST


def tokens_of(rng: np.random.Generator, num_prompts: int) -> TuningTokens:
    """Two exit points whose scores tell, more or less, whether full depth agrees; prompts are of unequal difficulty."""
    ease = np.repeat(rng.beta(8, 2, num_prompts), 12)
    scores = np.stack([rng.beta(1 + 5 * ease, 2), rng.beta(1 + 9 * ease, 1.5)], axis=1)
    agreed = rng.random(scores.shape) < scores ** np.array([0.6, 0.3])
    saved, asked = np.array([20.0, 10.0]), np.array([1.0, 1.0])
    return TuningTokens(scores.astype(np.float32), agreed, np.repeat(np.arange(num_prompts), 12), saved, asked)


def losses_of(tokens: TuningTokens, thresholds: tuple[float, ...]) -> np.ndarray:
    """Each prompt's share of tokens that left with another token than full depth's."""
    leaves = tokens.scores.astype(np.float64) >= np.array(thresholds)
    first = leaves.argmax(axis=1)
    wrong = leaves.any(axis=1) & ~tokens.agreed[np.arange(len(first)), first]
    return wrong.reshape(-1, 12).mean(axis=1)


@pytest.mark.slow
def test_the_risk_is_kept_along_a_path_from_tuning_prompts() -> None:
    truth = tokens_of(np.random.default_rng(5), 20_000)
    num_certified = []

    def run(rng: np.random.Generator) -> float | None:
        path = threshold_path(tokens_of(rng, 50), 0.1)
        calibration = tokens_of(rng, 150)
        walk = fixed_sequence([p.thresholds for p in path], lambda each: losses_of(calibration, each), 0.1, DELTA)
        num_certified.append(len(walk.passed))
        return float(losses_of(truth, walk.passed[-1].setting).mean()) if walk.passed else None

    assert num_exceeded(0.1, run) <= MOST
    assert np.mean(num_certified) > 1
