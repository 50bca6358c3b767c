"""The folder of a training under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.errors import InvalidRequestError
from offramp.train.exits.recipe import Recipe, check_layers, default_layers
from offramp.train.exits.work import kept_if_worth_it, open_work


def test_what_was_noted_is_there_again(tmp_path: Path) -> None:
    identity = Recipe(layers=(2, 3)).as_json()
    folder = open_work(tmp_path / "work", identity)
    assert folder.state["seconds"] == 0.0
    folder.note(captured=7)
    assert open_work(tmp_path / "work", identity).state["captured"] == 7


def test_another_trainings_folder_is_refused_by_what_differs(tmp_path: Path) -> None:
    open_work(tmp_path, Recipe(rank=8).as_json()).answers.write_text("{}\n")
    with pytest.raises(InvalidRequestError, match="rank, seed differ"):
        open_work(tmp_path, Recipe(rank=9, seed=1).as_json())


def test_a_folder_with_nothing_to_go_on_from_is_nobodys(tmp_path: Path) -> None:
    open_work(tmp_path, Recipe(rank=8).as_json()).note(seconds=9.0)  # and was killed
    assert open_work(tmp_path, Recipe(rank=9).as_json()).state["seconds"] == 0.0
    with pytest.raises(KeyError), kept_if_worth_it(open_work(tmp_path / "new", {})):
        raise KeyError
    assert not (tmp_path / "new").exists()


def test_a_folder_with_answers_stays(tmp_path: Path) -> None:
    folder = open_work(tmp_path / "new", {})
    folder.answers.write_text("{}\n")
    with pytest.raises(KeyError), kept_if_worth_it(folder):
        raise KeyError
    assert folder.answers.exists()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    folder = open_work(tmp_path, {})
    folder.answers.write_text("{}\n")
    folder.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("layers", [(0, 2), (2, 4), (3, 2), (2, 2), ()])
def test_exit_points_lie_within_the_model(layers: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="are impossible"):
        check_layers(layers, 4)


@pytest.mark.parametrize("num_layers", [2, 3, 4, 12, 30])
def test_default_exit_points_do(num_layers: int) -> None:
    check_layers(default_layers(num_layers), num_layers)
