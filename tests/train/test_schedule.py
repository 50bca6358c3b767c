"""Layer dropout, curriculum and weights: the published formulas."""

from __future__ import annotations

from itertools import pairwise

import pytest

from offramp.train.layerskip.recipe import Recipe, default_exits
from offramp.train.layerskip.schedule import dropout_rates, exits_on, learning_rate, loss_weights

EXITS = tuple(range(1, 12))


def test_dropout_rises_from_none_to_the_most() -> None:
    rates = dropout_rates(12, 0.2)
    assert rates[0] == 0.0
    assert rates[-1] == pytest.approx(0.2)
    assert rates[5] == pytest.approx(0.2 * (2 ** (5 / 11) - 1))
    assert dropout_rates(1, 0.2).tolist() == [0.0]


def test_the_rotational_curriculum_has_each_exit_on_once_a_period() -> None:
    sets = [exits_on(EXITS, 12, "rotational", period=4, step=step, progress=0.5) for step in range(8)]
    assert sorted(layer for some in sets[:4] for layer in some) == list(EXITS)
    assert sets[:4] == sets[4:]
    assert {b - a for some in sets for a, b in pairwise(some)} == {4}


def test_the_gradual_curriculum_goes_down_over_the_first_half() -> None:
    on = [exits_on(EXITS, 12, "gradual", period=4, step=0, progress=p) for p in (0.0, 0.1, 0.3, 0.46, 1.0)]
    assert on == [[], [10, 11], list(range(5, 12)), list(EXITS), list(EXITS)]


def test_loss_weights_are_normalized_and_rise() -> None:
    weights = loss_weights([2, 6], 12, scale=0.5)
    assert sum(weights) == pytest.approx(1.0)
    assert weights == pytest.approx([1 / 16, 3 / 16, 12 / 16])
    assert loss_weights([], 12, 0.5) == [1.0]


def test_the_learning_rate_warms_up_and_falls() -> None:
    rates = [learning_rate(1.0, progress) for progress in (0.0, 0.015, 0.03, 0.5, 1.0)]
    assert rates[0] == pytest.approx(0.02)
    assert rates[1] < rates[2] > 0.99
    assert rates[3] == pytest.approx(0.505)
    assert rates[4] == pytest.approx(0.01)


@pytest.mark.parametrize(("num_layers", "exits"), [(30, tuple(range(4, 30, 2))), (4, (2,)), (2, (1,))])
def test_default_exits_lie_within_the_model(num_layers: int, exits: tuple[int, ...]) -> None:
    assert default_exits(num_layers) == exits


def test_a_recipe_survives_json() -> None:
    import json

    recipe = Recipe(exits=(2, 4), rank=None)
    assert Recipe.from_json(json.loads(json.dumps(recipe.as_json()))) == recipe
