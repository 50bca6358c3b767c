"""Packs that come with the package are found by name; a path of the user's comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.cli.app import run
from offramp.errors import ModelNotFoundError
from offramp.exits.pack_file import read_pack, write_pack
from offramp.model.shipped import PACKS, pack_folder, shipped_packs
from offramp.testing.packs import random_pack
from offramp.testing.toy import toy_config

MOST_BYTES = 4 << 20
"""Of a shipped pack."""


@pytest.fixture
def packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped packs with one named `toy`."""
    folder = tmp_path / "packs"
    (folder / "exits").mkdir(parents=True)
    monkeypatch.setattr("offramp.model.shipped.PACKS", folder)
    write_pack(folder / "exits" / "toy", random_pack(toy_config()))
    return folder / "exits"


def test_a_bare_name_means_the_shipped_pack(packs: Path) -> None:
    assert (shipped_packs("exits"), shipped_packs("drafters")) == (["toy"], [])
    assert read_pack("toy").folder == packs / "toy"


def test_a_path_of_the_users_comes_first(packs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = write_pack(Path("toy"), random_pack(toy_config(), seed=1))
    assert read_pack("toy").identity == own.identity
    assert pack_folder("exits", tmp_path / "toy") == tmp_path / "toy"


def test_an_unknown_name_is_refused_with_those_there_are(packs: Path) -> None:
    with pytest.raises(ModelNotFoundError) as error:
        read_pack("toy2")
    assert "toy" in error.value.hint


def test_calibrating_a_shipped_pack_asks_for_a_copy(packs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["calibrate", "nowhere", "--exits", "toy", "--prompts", "nowhere", "--risk", "0.05"])
    told = capsys.readouterr().err
    assert code == 2
    assert "shipped" in told
    assert "copy" in told


@pytest.mark.parametrize("name", shipped_packs("exits"))
def test_what_is_shipped_is_whole_small_and_says_where_it_comes_from(name: str) -> None:
    pack = read_pack(name)
    assert pack.folder == PACKS / "exits" / name
    assert pack.config.provenance["prompts"]
    assert sum(file.stat().st_size for file in pack.folder.iterdir()) <= MOST_BYTES
