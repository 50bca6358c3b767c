"""The folder of a training under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.errors import InvalidRequestError
from offramp.train.exits.recipe import Recipe, check_layers, default_layers
from offramp.train.exits.work import open_work


def test_what_was_noted_is_there_again(tmp_path: Path) -> None:
    identity = Recipe(layers=(2, 3)).as_json()
    folder = open_work(tmp_path / "work", identity)
    assert folder.state["seconds"] == 0.0
    folder.note(captured=7)
    assert open_work(tmp_path / "work", identity).state["captured"] == 7


def test_another_trainings_folder_is_refused_by_what_differs(tmp_path: Path) -> None:
    open_work(tmp_path, Recipe(rank=8).as_json())
    with pytest.raises(InvalidRequestError, match="rank, seed differ"):
        open_work(tmp_path, Recipe(rank=9, seed=1).as_json())


@pytest.mark.parametrize("layers", [(0, 2), (2, 4), (3, 2), (2, 2), ()])
def test_exit_points_lie_within_the_model(layers: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="are impossible"):
        check_layers(layers, 4)


@pytest.mark.parametrize("num_layers", [2, 3, 4, 12, 30])
def test_default_exit_points_do(num_layers: int) -> None:
    check_layers(default_layers(num_layers), num_layers)
