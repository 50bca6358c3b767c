"""p-values, sample sizes, splits and the walk down a path."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.calibration import (
    binomial_cdf,
    check_sample,
    fixed_sequence,
    hoeffding_bentkus_p,
    hoeffding_p,
    required_prompts,
    split,
)


def exact_cdf(most: int, count: int, chance: Fraction) -> float:
    terms = (math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(most + 1))
    return float(sum(terms, Fraction(0)))


@pytest.mark.parametrize("count", [1, 7, 60, 300])
@pytest.mark.parametrize("chance", [Fraction(1, 100), Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)])
def test_the_binomial_tail_is_exact(count: int, chance: Fraction) -> None:
    for most in {0, 1, count // 20, count // 2, count - 1} & set(range(count)):
        assert binomial_cdf(most, count, float(chance)) == pytest.approx(exact_cdf(most, count, chance), rel=1e-9)
    assert binomial_cdf(-1, count, float(chance)) == 0.0
    assert binomial_cdf(count, count, float(chance)) == 1.0


def test_tails_that_underflow_are_zero_not_wrong() -> None:
    assert binomial_cdf(10, 1_000_000, 0.5) == 0.0
    assert binomial_cdf(0, 100_000, 0.0001) == pytest.approx((1 - 0.0001) ** 100_000, rel=1e-9)


def test_p_values_by_hand() -> None:
    assert hoeffding_p(0.02, 500, 0.05) == pytest.approx(math.exp(-2 * 500 * 0.03**2))
    assert hoeffding_p(0.06, 500, 0.05) == 1.0
    assert hoeffding_bentkus_p(0.0, 60, 0.05) == pytest.approx(0.95**60)
    tail = exact_cdf(9, 358, Fraction(1, 20))
    entropy = 0.025 * math.log(0.5) + 0.975 * math.log(0.975 / 0.95)
    assert hoeffding_bentkus_p(8.95, 358, 0.05) == pytest.approx(min(math.e * tail, math.exp(-358 * entropy)))
    assert hoeffding_bentkus_p(30.0, 358, 0.05) == 1.0


def test_p_values_rise_with_the_loss_and_fall_with_the_risk() -> None:
    by_loss = [hoeffding_bentkus_p(total, 400, 0.1) for total in np.linspace(0, 400, 81)]
    assert by_loss == sorted(by_loss)
    by_risk = [hoeffding_bentkus_p(12.0, 400, risk) for risk in np.linspace(0.001, 0.999, 81)]
    assert by_risk == sorted(by_risk, reverse=True)
    for total in np.linspace(0, 400, 81):
        assert hoeffding_bentkus_p(total, 400, 0.1) <= hoeffding_p(total / 400, 400, 0.1) + 1e-12


@pytest.mark.parametrize("count", [20, 60, 358])
@pytest.mark.parametrize("risk", [Fraction(1, 50), Fraction(1, 20), Fraction(1, 3)])
def test_small_p_values_are_rare_exactly(count: int, risk: Fraction) -> None:
    """For losses of 0 and 1 whose mean is the risk: P(p-value at most p(total)) = P(at most that total) <= p(total)."""
    for total in range(0, count, max(1, count // 40)):
        assert exact_cdf(total, count, risk) <= hoeffding_bentkus_p(float(total), count, float(risk)) * (1 + 1e-9)


def test_a_sum_a_rounding_above_a_whole_number_is_that_number() -> None:
    total = math.fsum([0.1] * 90 + [1e-12])
    assert hoeffding_bentkus_p(total, 358, 0.05) == pytest.approx(hoeffding_bentkus_p(9.0, 358, 0.05))
    assert hoeffding_bentkus_p(9.01, 358, 0.05) > 1.3 * hoeffding_bentkus_p(9.0, 358, 0.05)


def test_sample_sizes() -> None:
    assert required_prompts(0.05, 0.05) == 60
    assert required_prompts(0.05, 0.05, 0.025) == 358
    assert required_prompts(0.02, 0.05, 0.01) == 896


@pytest.mark.parametrize(("risk", "delta", "loss"), [(0.05, 0.05, 0.0), (0.02, 0.1, 0.0), (0.1, 0.01, 0.05)])
def test_sample_sizes_suffice_and_are_close_to_the_fewest(risk: float, delta: float, loss: float) -> None:
    count = required_prompts(risk, delta, loss)
    assert hoeffding_bentkus_p(count * loss, count, risk) <= delta
    fewest = next(n for n in range(1, count + 1) if hoeffding_bentkus_p(n * loss, n, risk) <= delta)
    assert fewest <= count <= 1.1 * fewest


@pytest.mark.parametrize("loss", [0.05, 0.06, -0.1, math.nan])
def test_losses_that_no_sample_helps_are_refused(loss: float) -> None:
    with pytest.raises(InvalidRequestError, match="loss="):
        required_prompts(0.05, 0.05, loss)


def test_too_small_a_sample_is_refused_with_the_number_it_takes() -> None:
    check_sample(59, 0.05, 0.05)
    for count in (0, 58):
        with pytest.raises(InvalidRequestError, match=f"{count} calibration prompts are too few") as caught:
            check_sample(count, 0.05, 0.05)
        assert caught.value.hint == "it takes 60 without any loss, 358 at half the risk"


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, 1.1, math.nan, math.inf, "0.1"])
def test_impossible_risks_and_deltas_are_refused(risk: float) -> None:
    with pytest.raises(InvalidRequestError, match="risk="):
        check_sample(100, risk, 0.05)
    with pytest.raises(InvalidRequestError, match="risk="):
        fixed_sequence([1], lambda setting: np.zeros(10), risk, 0.05)
    if risk != 1.0:
        with pytest.raises(InvalidRequestError, match="delta="):
            fixed_sequence([1], lambda setting: np.zeros(10), 0.05, risk)


def test_a_split_is_disjoint_whole_and_seeded() -> None:
    tuning, calibration = split(500, 100, seed=7)
    assert len(tuning) == 100
    assert sorted([*tuning.tolist(), *calibration.tolist()]) == list(range(500))
    again = split(500, 100, seed=7)
    assert np.array_equal(again[0], tuning)
    assert np.array_equal(again[1], calibration)
    assert not np.array_equal(split(500, 100, seed=8)[0], tuning)
    assert not np.array_equal(tuning, np.arange(100)), "drawn, not cut off"
    for num_tuning in (0, 500):
        with pytest.raises(InvalidRequestError, match="num_tuning="):
            split(500, num_tuning, seed=7)


def constant(mean: float, count: int = 400) -> np.ndarray:
    return np.full(count, mean)


def test_the_walk_stops_at_the_first_failure() -> None:
    asked: list[float] = []

    def losses(mean: float) -> np.ndarray:
        asked.append(mean)
        return constant(mean)

    walk = fixed_sequence([0.0, 0.01, 0.049, 0.02], losses, risk=0.05, delta=0.05)
    assert [tested.setting for tested in walk.passed] == [0.0, 0.01]
    assert walk.failed is not None
    assert (walk.failed.setting, walk.failed.num_prompts) == (0.049, 400)
    assert walk.failed.mean_loss == pytest.approx(0.049)
    assert walk.failed.p_value > 0.05 >= walk.passed[-1].p_value
    assert asked == [0.0, 0.01, 0.049], "what follows is never measured"


def test_a_walk_may_pass_everything_or_nothing() -> None:
    everything = fixed_sequence([0.0, 0.01], constant, risk=0.05, delta=0.05)
    assert everything.failed is None
    assert len(everything.passed) == 2
    nothing = fixed_sequence([0.2, 0.0], constant, risk=0.05, delta=0.05)
    assert nothing.passed == ()
    assert fixed_sequence([], constant, risk=0.05, delta=0.05).passed == ()


@pytest.mark.parametrize("wrong", [[0.1, math.nan], [1.1], [-0.1, 0.0], [math.inf], []])
def test_losses_outside_zero_to_one_are_refused(wrong: list[float]) -> None:
    with pytest.raises(InvalidRequestError, match="losses="):
        fixed_sequence([1], lambda setting: np.array(wrong), risk=0.05, delta=0.05)
