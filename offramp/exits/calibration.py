"""The statistics behind `calibrated`: which settings keep a loss under a risk, with confidence 1 - delta.

What: Learn-then-Test. A path of settings, safest first, is chosen on one part of the prompts (`path.py`); on the other
part each is tested in order: the null hypothesis is a mean loss above `risk`. The walk ends at the first test that
fails; all before it are certified together, with probability at least 1 - delta over the calibration prompts.
When it helps: losses within [0, 1] a prompt, prompts drawn independently from the traffic to come.
Cost: one answer a prompt for each setting that is tested.
Exactness: the bound holds for every sample size and every law of the losses; nothing is asymptotic.
Source: Learn then Test (arXiv 2110.01052), Hoeffding-Bentkus (arXiv 2101.02703), as in CALM (arXiv 2207.07061).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from offramp.errors import InvalidRequestError
from offramp.params import check_int, check_number, refused

Losses = NDArray[np.float64]  # [prompts], each in [0, 1]

GROWTH = 1.03
"""Sample sizes are searched in steps of 3 %."""
ROUNDING = 1e-9
"""What a sum of losses may be off by the rounding of its terms."""
MAX_PROMPTS = 10_000_000


def hoeffding_p(mean: float, count: int, risk: float) -> float:
    """exp(-2 n (risk - mean)^2): the plain bound, for comparison."""
    return math.exp(-2 * count * max(0.0, risk - mean) ** 2)


def hoeffding_bentkus_p(total: float, count: int, risk: float) -> float:
    """How likely losses that sum to `total` or less are when the mean loss is above `risk`: at most this.

    The smaller of Hoeffding's bound in relative entropy and e times the binomial tail.
    """
    check_risk(risk)
    assert 0 <= total <= count * (1 + ROUNDING), (total, count)
    mean = min(total / count, risk)
    hoeffding = math.exp(-count * _relative_entropy(mean, risk))
    bentkus = math.e * binomial_cdf(math.ceil(total - ROUNDING), count, risk)
    return min(1.0, hoeffding, bentkus)


def binomial_cdf(most: int, count: int, chance: float) -> float:
    """P(at most `most` of `count` independent events), each with a chance in (0, 1)."""
    if most >= count:
        return 1.0
    if most < 0:
        return 0.0
    k = np.arange(1, most + 1, dtype=np.float64)
    steps = np.log((count - k + 1) / k) + (math.log(chance) - math.log1p(-chance))
    logs = count * math.log1p(-chance) + np.concatenate(([0.0], np.cumsum(steps)))
    largest = float(logs.max())
    return min(1.0, math.exp(largest) * float(np.exp(logs - largest).sum()))


def required_prompts(risk: float, delta: float, loss: float = 0.0) -> int:
    """So many calibration prompts let a setting with this mean loss pass; a few per cent above the fewest.

    A test counts losses by whole prompts, rounded up, so some larger numbers don't suffice and some smaller ones may.
    Raises InvalidRequestError where none would.
    """
    check_risk(risk)
    check_delta(delta)
    if not 0 <= loss < risk:
        raise refused("loss", loss, f"a number in [0, {risk:g}): a mean loss of the risk or more passes no test")
    count = 1
    while hoeffding_bentkus_p(count * loss, count, risk) > delta:
        count = max(count + 1, math.ceil(count * GROWTH))
        if count > MAX_PROMPTS:
            raise refused("risk", risk, f"a risk farther above the loss of {loss:g}: over {MAX_PROMPTS:,} prompts")
    return count


def check_sample(count: int, risk: float, delta: float) -> None:
    """Refuse a calibration sample on which even a setting without any loss would fail."""
    if count == 0 or hoeffding_bentkus_p(0.0, count, risk) > delta:
        needed = required_prompts(risk, delta)
        raise InvalidRequestError(
            f"{count} calibration prompts are too few for risk={risk:g} at delta={delta:g}",
            hint=f"it takes {needed} without any loss, {required_prompts(risk, delta, risk / 2)} at half the risk",
            param="prompts",
        )


def split(count: int, num_tuning: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of tuning and calibration prompts: disjoint, all of `count`, rising, the same for the same seed."""
    check_int("num_tuning", num_tuning, 1, count - 1)
    order = np.random.Generator(np.random.Philox(seed)).permutation(count)
    return np.sort(order[:num_tuning]), np.sort(order[num_tuning:])


Setting = TypeVar("Setting")


@dataclass(frozen=True, slots=True)
class Tested(Generic[Setting]):
    """A setting and what its test said."""

    setting: Setting
    num_prompts: int
    mean_loss: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Walk(Generic[Setting]):
    """Settings that passed, safest first; and the one at which the walk ended, None if all passed."""

    passed: tuple[Tested[Setting], ...]
    failed: Tested[Setting] | None


def fixed_sequence(
    path: Sequence[Setting], losses: Callable[[Setting], Losses], risk: float, delta: float
) -> Walk[Setting]:
    """Test settings in order until one fails. The path must be fixed before any of these losses is seen."""
    check_risk(risk)
    check_delta(delta)
    passed: list[Tested[Setting]] = []
    for setting in path:
        result = _test(setting, losses(setting), risk)
        if result.p_value > delta:
            return Walk(tuple(passed), result)
        passed.append(result)
    return Walk(tuple(passed), None)


def check_risk(risk: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    check_number("risk", risk, 0.0, 1.0, open_low=True, open_high=True)


def check_delta(delta: float) -> None:
    """Refuse what is not strictly between 0 and 1: 1 would be no confidence at all."""
    check_number("delta", delta, 0.0, 1.0, open_low=True, open_high=True)


def _test(setting: Setting, losses: Losses, risk: float) -> Tested[Setting]:
    if len(losses) == 0:
        raise refused("losses", [], "the loss of one prompt at least")
    wrong = losses[~((losses >= 0) & (losses <= 1))]
    if len(wrong):
        raise refused("losses", float(wrong[0]), "numbers in [0, 1]")
    total = math.fsum(losses.tolist())
    count = len(losses)
    return Tested(setting, count, total / count, hoeffding_bentkus_p(total, count, risk))


def _relative_entropy(mean: float, chance: float) -> float:
    """Between Bernoulli laws, for 0 <= mean <= chance < 1."""
    below = mean * math.log(mean / chance) if mean > 0 else 0.0
    return below + (1 - mean) * math.log((1 - mean) / (1 - chance))
