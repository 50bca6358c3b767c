"""Converted models: the whole model without its source, there whole or not at all, refused when damaged or foreign."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.errors import (
    CorruptModelError,
    InvalidRequestError,
    ModelNotFoundError,
    ResourceError,
    UnsupportedModelError,
)
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.tensors import WeightFormat, is_vector
from offramp.native.converted import ConvertedModel, open_model
from offramp.native.converting import check_target, convert, converted_bytes
from offramp.native.packed import PackedInMemory
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint
from offramp.testing.models import chat_tokenizer, tokenizer_metadata
from offramp.testing.toy import toy_config, toy_source

TEXTS = {
    "tokenizer.json": json.loads(chat_tokenizer()._backend.to_str()),
    "generation_config.json": {"eos_token_id": 2, "temperature": 0.5},
}
CONFIG = toy_config(num_layers=2, vocab_size=chat_tokenizer().vocab_size)


def write_source(folder: Path, kind: str = "gguf", seed: int = 3) -> Path:
    values = role_values(toy_source(CONFIG, seed=seed))
    if kind == "gguf":
        folder.mkdir(exist_ok=True)
        metadata = tokenizer_metadata() | {"general.sampling.temp": 0.5}
        return write_gguf(folder / "toy.gguf", CONFIG, values, matrix_type="Q4_1", metadata=metadata)
    path = write_safetensors_checkpoint(folder, CONFIG, values, dtype="F16", json_files=TEXTS)
    (path / "chat_template.jinja").write_text("{{ messages }}")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    (path / "pytorch_model.bin").write_bytes(b"pickle")
    return path


def converted(
    source: Path, target: Path, fmt: WeightFormat = "auto", tell: Callable[[int], None] = lambda n: None
) -> Path:
    checkpoint = open_checkpoint(source)
    convert(checkpoint, checkpoint.weights(fmt), target, source="toy", tell=tell)
    return target


def opened(path: Path) -> ConvertedModel:
    model = open_model(path)
    assert isinstance(model, ConvertedModel)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return converted(write_source(tmp_path / "source"), tmp_path / "converted")


def rewrite(folder: Path, **fields: object) -> None:
    """Change or, with None, remove fields of the description."""
    path = folder / "offramp.json"
    kept = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in kept.items() if value is not None}))


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
@pytest.mark.parametrize("fmt", ["auto", "f32", "q8", "q4"])
def test_everything_is_there_without_the_source(tmp_path: Path, kind: str, fmt: WeightFormat) -> None:
    source = write_source(tmp_path / "source", kind)
    checkpoint = open_checkpoint(source)
    packed = PackedInMemory(checkpoint.weights(fmt))
    expected = {
        role: packed.vector(role) if is_vector(role) else packed.matrix(role).tiles for role in checkpoint.roles
    }
    source_hash, tokenizer_source, texts = checkpoint.source_hash(), checkpoint.tokenizer_source, {}
    if kind == "safetensors":
        texts = {str(f.relative_to(source)): f.read_bytes() for f in source.rglob("*.j*") if f.is_file()}
        assert len(texts) == 5
    told: list[int] = []
    path = converted(source, tmp_path / "converted", fmt, told.append)
    assert sum(told) == converted_bytes(checkpoint.weights(fmt))
    shutil.rmtree(source if source.is_dir() else source.parent)
    model = opened(path)
    assert (model.config, model.generation) == (checkpoint.config, checkpoint.generation)
    assert (model.source, model.source_hash, model.fmt) == ("toy", source_hash, fmt)
    weights = model.weights(model.config)
    assert weights.entries.keys() == expected.keys()
    for role, values in expected.items():
        np.testing.assert_array_equal(weights.vector(role) if is_vector(role) else weights.matrix(role).tiles, values)
    if kind == "gguf":
        assert model.tokenizer_source == tokenizer_source
        assert sorted(os.listdir(path)) == ["offramp.json", "tokenizer.gguf.json", "weights.offw"]
    else:
        assert model.tokenizer_source == path
        found = {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
        assert found.keys() - texts.keys() == {"offramp.json", "weights.offw"}
        assert found | texts == found


def test_a_template_put_into_the_folder_counts(tmp_path: Path) -> None:
    folder = converted(write_source(tmp_path / "source"), tmp_path / "converted")
    before = opened(folder).tokenizer_source
    (folder / "chat_template.jinja").write_text("mine")
    assert isinstance(before, dict)
    assert before["tokenizer.chat_template"] != "mine"
    assert opened(folder).tokenizer_source == {**before, "tokenizer.chat_template": "mine"}


def test_no_path_of_this_machine_is_written(folder: Path) -> None:
    for file in folder.iterdir():
        assert str(folder.parent).encode() not in file.read_bytes()


def test_it_serves_another_context(folder: Path) -> None:
    model = opened(folder)
    assert model.weights(model.config.for_context(9)).config == model.config.for_context(9)


@pytest.mark.parametrize(
    ("kind", "made", "gives"),
    [
        ("gguf", "auto", "auto q4"),
        ("gguf", "q4", "auto q4"),
        ("gguf", "q8", "auto q8"),
        ("gguf", "f32", "auto f32"),
        ("safetensors", "auto", "auto q8"),
        ("safetensors", "q4", "auto q4"),
    ],
)
def test_which_formats_it_gives(tmp_path: Path, kind: str, made: WeightFormat, gives: str) -> None:
    """A format is given exactly if the source would give the same weights."""
    source = write_source(tmp_path / "source", kind)
    if kind == "gguf":  # as common 4-bit files are
        values = role_values(toy_source(CONFIG, seed=3))
        write_gguf(
            source, CONFIG, values, matrix_type="Q4_1", types={"embedding": "Q8_0"}, metadata=tokenizer_metadata()
        )
    model = opened(converted(source, tmp_path / "converted", made))
    for fmt in ("auto", "f32", "q8", "q4"):
        if fmt in gives.split():
            model.check_gives(fmt)  # type: ignore[arg-type]
            continue
        with pytest.raises(InvalidRequestError, match=f"weights='{fmt}' can't be had from") as caught:
            model.check_gives(fmt)  # type: ignore[arg-type]
        assert caught.value.hint == f"leave the format out, or convert toy again with --weights {fmt}"


@pytest.mark.parametrize("cut", [1, 100, 0.5, 0.98, 1.0])
def test_truncated_weights_are_refused_naming_tensor_and_sizes(folder: Path, cut: float) -> None:
    file = folder / "weights.offw"
    whole = file.read_bytes()
    places = json.loads((folder / "offramp.json").read_text())["tensors"]
    end = max(offset + size for offset, size in places.values())
    kept = cut if isinstance(cut, int) else int(cut * end)
    file.write_bytes(whole[:kept])
    with pytest.raises(CorruptModelError, match=f"weights.offw has {kept} bytes of {len(whole)}") as caught:
        open_model(folder)
    short = next((role for role, (offset, size) in places.items() if offset + size > kept), None)
    if short is None:  # only the directory behind the tensors is cut
        assert "tensor" not in caught.value.message
    else:
        offset, size = places[short]
        present = max(0, kept - offset)
        assert f"tensor {short!r} needs {size} at offset {offset}, and {present} are present" in caught.value.message


def test_damage_is_refused(folder: Path, tmp_path: Path) -> None:
    file = folder / "weights.offw"
    whole = bytearray(file.read_bytes())
    file.write_bytes(whole + b"more")
    with pytest.raises(CorruptModelError, match=f"(?m)has {len(whole) + 4} bytes of {len(whole)}$"):
        open_model(folder)
    whole[-60] ^= 1
    file.write_bytes(whole)
    with pytest.raises(CorruptModelError, match=r"weights\.offw: its directory has changed"):
        open_model(folder)
    file.unlink()
    with pytest.raises(CorruptModelError, match=r"weights\.offw is missing"):
        open_model(folder)
    (folder / "tokenizer.gguf.json").unlink()
    with pytest.raises(CorruptModelError, match=r"tokenizer\.gguf\.json is missing"):
        open_model(folder)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("config", None, "ModelConfig"),
        ("config", {"kind": "ModelConfig"}, "ModelConfig"),
        ("generation", 3, "GenerationDefaults"),
        ("source_hash", None, "source_hash"),
        ("source_hash", "of another", "different models"),
        ("tensors", {}, "different models"),
        ("weights", "q5", "q5"),
        ("tokenizer", "../secret", "secret"),
        ("num_bytes", "many", "num_bytes"),
    ],
)
def test_a_changed_description_is_refused(folder: Path, field: str, value: object, named: str) -> None:
    rewrite(folder, **{field: value})
    with pytest.raises(CorruptModelError, match=named):
        open_model(folder)


def test_half_a_description_is_refused(folder: Path) -> None:
    path = folder / "offramp.json"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptModelError, match="not valid JSON"):
        open_model(folder)


def test_files_of_two_conversions_do_not_mix(folder: Path, tmp_path: Path) -> None:
    other = converted(write_source(tmp_path / "other", seed=4), tmp_path / "converted-other")
    shutil.copyfile(other / "weights.offw", folder / "weights.offw")
    with pytest.raises(CorruptModelError, match="of different models"):
        open_model(folder)


@pytest.mark.parametrize(("field", "form"), [("form", "2.4"), ("layout", "1.2")])
def test_another_version_is_refused_with_the_way_out(folder: Path, field: str, form: str) -> None:
    rewrite(folder, **{field: 2, "offramp": "0.9", "config": {"of": "that time"}})
    with pytest.raises(UnsupportedModelError, match=f"converted by offramp 0.9 in form {form}") as caught:
        open_model(folder)
    assert caught.value.hint == "make it anew: offramp convert toy -o FOLDER"


def test_a_part_of_it_is_no_model(folder: Path) -> None:
    for name in ("weights.offw", "offramp.json"):
        with pytest.raises(ModelNotFoundError) as caught:
            open_model(folder / name)
        assert str(folder) in caught.value.hint


def test_targets_that_are_taken_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, named in (("file", "is there already"), ("full", "is not empty"), ("link", "is there already"),
                        ("no/folder", "is no folder"), ("file/x", "is no folder")):  # fmt: skip
        with pytest.raises(InvalidRequestError, match=named):
            check_target(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert opened(converted(write_source(tmp_path / "source"), tmp_path / "empty"))


def listed(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "there").mkdir()
    count = 0

    def interrupt(num_bytes: int) -> None:
        nonlocal count
        count += 1
        if count == 7:
            raise KeyboardInterrupt

    for name in ("new", "there"):
        count = 0
        with pytest.raises(KeyboardInterrupt):
            converted(source, tmp_path / name, tell=interrupt)
    assert listed(tmp_path) == ["source", "there"]
    assert listed(tmp_path / "there") == []


def test_a_source_that_can_not_be_read_leaves_nothing(tmp_path: Path) -> None:
    values = role_values(toy_source(CONFIG, seed=3))
    values["layers.1.down"][3, 5] = np.nan
    source = write_gguf(tmp_path / "toy.gguf", CONFIG, values, metadata=tokenizer_metadata())
    with pytest.raises(CorruptModelError, match="ffn_down"):
        converted(source, tmp_path / "converted")
    assert listed(tmp_path) == ["toy.gguf"]


def test_no_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_source(tmp_path / "source")
    usage: Any = shutil.disk_usage(tmp_path)
    usage = usage._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ResourceError, match=f"{tmp_path} has 1 MiB left"):
        converted(source, tmp_path / "converted")
    assert listed(tmp_path) == ["source"]


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_source(tmp_path / "source")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match=f"can't write {tmp_path / 'converted'}: the disk is full"):
        converted(source, tmp_path / "converted")
    assert listed(tmp_path) == ["source"]


def test_a_target_filled_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    source, target = write_source(tmp_path / "source"), tmp_path / "converted"

    def meanwhile(num_bytes: int) -> None:
        target.mkdir(exist_ok=True)
        (target / "mine").write_text("mine")

    with pytest.raises(InvalidRequestError, match="was filled meanwhile"):
        converted(source, target, tell=meanwhile)
    assert listed(tmp_path) == ["converted", "source"]
    assert listed(target) == ["mine"]


KILLED = """
import sys, time
from pathlib import Path
from offramp.model.checkpoint import open_checkpoint
from offramp.native.converting import convert
checkpoint = open_checkpoint(Path(sys.argv[1]))
def wait(num_bytes):
    print("half way", flush=True)
    time.sleep(60)
convert(checkpoint, checkpoint.weights(), Path(sys.argv[2]), source="toy", tell=wait)
"""


def test_a_killed_conversion_leaves_no_model_and_the_next_one_sweeps(tmp_path: Path) -> None:
    source, target = write_source(tmp_path / "source"), tmp_path / "converted"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"half way\n"
    converted(source, target)
    assert len(listed(tmp_path)) == 3, "a living writer keeps what it has"
    shutil.rmtree(target)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not target.exists()
    [left] = [name for name in listed(tmp_path) if name.startswith(".converted.")]
    assert left.endswith(".partial")
    converted(source, target)
    assert listed(tmp_path) == ["converted", "source"]


def test_the_checkpoint_itself_still_opens(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "safetensors")
    model = open_model(source)
    assert isinstance(model, Checkpoint)
    assert (model.kind, model.path) == ("safetensors", source)
