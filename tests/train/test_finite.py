"""No training begins with settings that are no numbers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from offramp.errors import InvalidRequestError
from offramp.train.drafter.recipe import Recipe as DrafterRecipe
from offramp.train.exits.recipe import Recipe as ExitsRecipe
from offramp.train.layerskip.recipe import Recipe as LayerSkipRecipe


@pytest.mark.parametrize("recipe", [DrafterRecipe, ExitsRecipe, LayerSkipRecipe])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused_by_name(recipe: Any, value: float) -> None:
    names = [each.name for each in fields(recipe) if isinstance(each.default, float)]
    assert {"minutes", "learning_rate"} <= set(names)
    for name in names:
        with pytest.raises(InvalidRequestError, match=f"{name}={value} is impossible") as caught:
            recipe(**{name: value})
        assert caught.value.param == name
