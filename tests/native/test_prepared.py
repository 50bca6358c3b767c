"""The prepared form on disk: equal to packing in memory, found again, rebuilt when damaged, never half written."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import ResourceError
from offramp.model.tensors import WeightSource
from offramp.native.packed import PackedInMemory
from offramp.native.prepared import Origin, prepared_weights
from offramp.native.prepared_file import PreparedWeights
from offramp.native.prepared_folder import prepared_files, remove_prepared
from offramp.testing.toy import toy_config, toy_source


class Hasher:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        return "abc"


@pytest.fixture
def source_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"source")
    return path


def prepare(source: WeightSource, file: Path, folder: Path, hasher: Hasher | None = None) -> PreparedWeights:
    return prepared_weights(source, files=[file], fmt="q8", source_hash=hasher or Hasher(), folder=folder)


@pytest.mark.parametrize("weights", ["f32", "q8", "q4"])
def test_every_tensor_equals_packing_in_memory(tmp_path: Path, source_file: Path, weights: str) -> None:
    source = toy_source(toy_config(), seed=1, weights=weights)
    mapped = prepare(source, source_file, tmp_path / "cache")
    packed = PackedInMemory(source)
    for role in source.roles():
        if role.endswith("norm"):
            np.testing.assert_array_equal(mapped.vector(role), packed.vector(role))
            continue
        here, there = mapped.matrix(role), packed.matrix(role)
        np.testing.assert_array_equal(here.tiles, there.tiles)
        assert (here.format, here.out_features, here.in_features) == (
            there.format,
            there.out_features,
            there.in_features,
        )


def test_second_start_maps_and_a_changed_source_is_prepared_anew(tmp_path: Path, source_file: Path) -> None:
    source, hasher = toy_source(toy_config(), seed=1), Hasher()
    first = prepare(source, source_file, tmp_path, hasher)
    assert prepare(source, source_file, tmp_path, hasher).path == first.path
    assert hasher.calls == 1
    assert first.source_hash == "abc"
    source_file.write_bytes(b"other source")
    assert prepare(source, source_file, tmp_path, hasher).path != first.path
    assert hasher.calls == 2


def test_formats_are_counted(tmp_path: Path, source_file: Path) -> None:
    config = toy_config()
    for weights in ("q8", "q4"):
        source = toy_source(config, seed=1, weights=weights)
        mapped = prepared_weights(source, files=[source_file], fmt=weights, source_hash=Hasher(), folder=tmp_path)
        matrices = [role for role in source.roles() if not role.endswith("norm")]
        assert mapped.formats == {weights: len(matrices)}


def test_the_folder_knows_what_its_files_were_made_from(tmp_path: Path, source_file: Path) -> None:
    folder, source = tmp_path / "cache", toy_source(toy_config(), seed=1)
    path = prepare(source, source_file, folder).path
    [file] = prepared_files(folder)
    assert (file.path, file.num_bytes, file.origin) == (path, path.stat().st_size, Origin((source_file,), "q8"))
    assert not file.lost
    assert file.made_from(source_file)
    assert file.made_from(tmp_path)
    assert not file.made_from(tmp_path / "model")
    source_file.write_bytes(b"other source")
    assert file.lost
    source_file.unlink()
    assert file.lost
    assert remove_prepared([file]) == file.num_bytes
    assert list(folder.iterdir()) == []


def test_what_no_start_can_use_is_lost(tmp_path: Path, source_file: Path) -> None:
    path = prepare(toy_source(toy_config(), seed=1), source_file, tmp_path / "cache").path
    path.write_bytes(path.read_bytes()[:-1])
    old, fresh = path.with_name(".a.partial"), path.with_name(".b.partial")
    for left in (old, fresh):
        left.write_bytes(b"half")
    os.utime(old, (1, 1))
    files = prepared_files(path.parent)
    assert [file.path for file in files if file.lost] == [path, old], "the writer of a fresh one may be at work"
    assert not any(file.made_from(source_file) for file in files)
    assert prepared_files(tmp_path / "none") == []


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.9999])
def test_damaged_files_are_rebuilt(
    tmp_path: Path, source_file: Path, keep: float, caplog: pytest.LogCaptureFixture
) -> None:
    source = toy_source(toy_config(), seed=1)
    path = prepare(source, source_file, tmp_path).path
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    assert prepare(source, source_file, tmp_path).path.read_bytes() == whole
    assert "damaged" in caplog.text


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, source_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = tmp_path / "cache"
    with pytest.raises(ResourceError, match="no space left") as caught:
        prepare(toy_source(toy_config(), seed=1), source_file, folder)
    assert "OFFRAMP_CACHE" in caught.value.hint
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


def test_an_unwritable_folder_is_one_clear_error(tmp_path: Path, source_file: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(ResourceError, match="can't write prepared weights"):
        prepare(toy_source(toy_config(), seed=1), source_file, blocker / "cache")


def test_what_killed_writers_left_is_swept(tmp_path: Path, source_file: Path) -> None:
    source = toy_source(toy_config(), seed=1)
    name = prepare(source, source_file, tmp_path).path.stem
    (tmp_path / f"{name}.offw").unlink()
    old, fresh = tmp_path / f".{name}.a.partial", tmp_path / f".{name}.b.partial"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    prepare(source, source_file, tmp_path)
    assert not old.exists()
    assert fresh.exists(), "its writer may still be at work"


def test_many_that_prepare_at_once_get_the_same_whole_file(tmp_path: Path, source_file: Path) -> None:
    source, hasher = toy_source(toy_config(), seed=1), Hasher()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: prepare(source, source_file, tmp_path / "cache", hasher), range(8)))
    assert hasher.calls == 1
    alone = prepare(source, source_file, tmp_path / "other")
    assert {weights.path.read_bytes() for weights in made} == {alone.path.read_bytes()}


def test_a_changed_directory_is_noticed(tmp_path: Path, source_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = toy_source(toy_config(), seed=1)
    path = prepare(source, source_file, tmp_path).path
    whole = path.read_bytes()
    at = whole.index(b'"offset": ') + len(b'"offset": ')
    path.write_bytes(whole[:at] + b"9" + whole[at + 1 :])
    assert prepare(source, source_file, tmp_path).path.read_bytes() == whole
    assert "directory has changed" in caplog.text


def test_a_file_for_another_config_is_noticed(
    tmp_path: Path, source_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(toy_source(toy_config(num_layers=3), seed=1), source_file, tmp_path)
    source = toy_source(toy_config(num_layers=2), seed=1)
    assert prepare(source, source_file, tmp_path).config == source.config
    prepare(toy_source(toy_config(num_layers=2, vocab_size=100), seed=1), source_file, tmp_path)
    assert "other tensors" in caplog.text
    assert "another shape" in caplog.text


def test_settling_keeps_the_bytes_and_needs_room(
    tmp_path: Path, source_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.native.prepared_file.large_pages_offered", lambda: True)
    source = toy_source(toy_config(), seed=1)
    mapped, settled = (prepare(source, source_file, tmp_path / "cache") for _ in range(2))
    size = settled.path.stat().st_size
    assert not settled.settle(2 * size - 1)
    assert settled.settle(2 * size)
    assert np.array_equal(settled.matrix("embedding").tiles, mapped.matrix("embedding").tiles)
    settled.path.write_bytes(b"short")
    assert not settled.settle(2 * size), "a file that got shorter stays mapped as it is"
