"""The safetensors reader: one file or shards, and every damaged or lying file refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from offramp.errors import CorruptModelError, ModelNotFoundError, UnsupportedModelError
from offramp.model.safetensors import INDEX_FILE, SINGLE_FILE, read_file, read_safetensors
from offramp.model.stored import check_decodable, decode_rows
from offramp.testing.checkpoints import write_safetensors

VALUES = np.array([[1.0, -2.5, 3e-5], [0.1, 65000.0, -1e-8]], np.float32)


def entry(begin: int, end: int, shape: list[int], dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def build(header: Mapping[str, object] | bytes, data: bytes = b"", size: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if size is None else size).to_bytes(8, "little") + raw + data


def test_a_file_of_the_package_is_read(tmp_path: Path) -> None:
    save_file({"w": VALUES, "h": VALUES.astype(np.float16), "n": np.arange(3)}, tmp_path / SINGLE_FILE)
    tensors = read_safetensors(tmp_path)
    assert (decode_rows(tensors["w"], 0, 2) == VALUES).all()
    assert (decode_rows(tensors["h"], 1, 2) == VALUES[1:].astype(np.float16)).all()
    assert (tensors["n"].dtype, tensors["n"].shape) == ("I64", (3,))
    with pytest.raises(UnsupportedModelError, match="'n' has type I64"):
        check_decodable(tensors["n"])


def test_bf16_is_the_upper_half_of_f32(tmp_path: Path) -> None:
    write_safetensors(tmp_path / SINGLE_FILE, {"w": VALUES}, "BF16")
    values = decode_rows(read_safetensors(tmp_path)["w"], 0, 2)
    assert (values.view(np.uint32) & 0xFFFF == 0).all()
    np.testing.assert_allclose(values, VALUES, rtol=2**-8)


def test_values_at_odd_addresses_are_read(tmp_path: Path) -> None:
    data = b"\x07" + VALUES.tobytes() + VALUES.astype("<f2").tobytes()
    header = {"odd": entry(0, 1, [1], "U8"), "w": entry(1, 25, [2, 3]), "h": entry(25, 37, [2, 3], "F16")}
    (tmp_path / SINGLE_FILE).write_bytes(build(header, data))
    tensors = read_safetensors(tmp_path)
    assert (decode_rows(tensors["w"], 0, 2) == VALUES).all()
    assert (decode_rows(tensors["h"], 0, 2) == VALUES.astype(np.float16)).all()


def write_shards(directory: Path, **places: str) -> Path:
    """Tensors a and b in shards 1 and 2, and an index that says `places`."""
    write_safetensors(directory / "model-1.safetensors", {"a": VALUES})
    write_safetensors(directory / "model-2.safetensors", {"b": VALUES * 2})
    (directory / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return directory


def test_shards_are_joined(tmp_path: Path) -> None:
    tensors = read_safetensors(write_shards(tmp_path, a="model-1.safetensors", b="model-2.safetensors"))
    assert sorted(tensors) == ["a", "b"]
    assert (decode_rows(tensors["b"], 0, 2) == VALUES * 2).all()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"a": "model-3.safetensors"}, "shard model-3.safetensors .* is missing; tensor 'a'"),
        ({"a": "model-2.safetensors"}, "'a' is missing from model-2.safetensors"),
        ({"a": "../model-1.safetensors"}, "'a' points to '../model-1.safetensors'"),
        ({"a": "/etc/x.safetensors"}, "points to '/etc/x.safetensors'"),
        ({"a": "..\\model-1.safetensors"}, "points to"),
        ({"a": "C:model-1.safetensors"}, "points to"),
        ({"a": "model-1.bin"}, "points to 'model-1.bin'"),
        ({"a": 3}, "points to 3"),
        ({}, "weight_map"),
    ],
)
def test_a_lying_index_is_refused(tmp_path: Path, places: dict[str, str], message: str) -> None:
    with pytest.raises(CorruptModelError, match=message):
        read_safetensors(write_shards(tmp_path, **places))


def test_tensors_that_the_index_leaves_out_are_read(tmp_path: Path) -> None:
    """So that one which the model does not know is refused, not dropped."""
    assert sorted(read_safetensors(write_shards(tmp_path, a="model-1.safetensors"))) == ["a"]
    write_safetensors(tmp_path / "model-1.safetensors", {"a": VALUES, "extra": VALUES})
    assert sorted(read_safetensors(tmp_path)) == ["a", "extra"]


def test_a_tensor_in_two_shards_must_be_one(tmp_path: Path) -> None:
    files = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    write_shards(tmp_path, **files)
    write_safetensors(tmp_path / "model-2.safetensors", {"b": VALUES * 2, "a": VALUES})
    assert sorted(read_safetensors(tmp_path)) == ["a", "b"]
    write_safetensors(tmp_path / "model-2.safetensors", {"b": VALUES * 2, "a": VALUES * 3})
    with pytest.raises(CorruptModelError, match=r"'a' is in model-\d\.safetensors and in another shard"):
        read_safetensors(tmp_path)


def test_shards_without_an_index_are_refused(tmp_path: Path) -> None:
    (write_shards(tmp_path) / INDEX_FILE).unlink()
    with pytest.raises(CorruptModelError, match=r"2 safetensors files but no model\.safetensors\.index\.json"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(UnsupportedModelError, match=name) as caught:
        read_safetensors(tmp_path)
    assert "convert" in caught.value.hint


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no weights"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("keep", [0.1, 0.5, -1])
def test_truncated_files_are_refused(tmp_path: Path, keep: float) -> None:
    write_safetensors(tmp_path / "whole", {"first": VALUES, "last": np.zeros((50, 50), np.float32)})
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / SINGLE_FILE).write_bytes(content[: int(len(content) * keep) if keep > 0 else -1])
    with pytest.raises(CorruptModelError, match=r"'last' needs 10000 bytes|announced"):
        read_safetensors(tmp_path)


LIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "seven bytes": (bytes(7), "7 bytes, not even a header"),
    "huge header": (build({}, size=2**63), "header of 9223372036854775808 bytes announced"),
    "header cut": (build({"w": entry(0, 4, [1])})[:-5], "announced"),
    "not json": (build(b"{]"), "not valid JSON"),
    "not utf-8": (build(b'{"\xff": 1}'), "not UTF-8"),
    "a list": (build(b"[]"), "not an object"),
    "duplicate name": (build(b'{"w": {}, "w": {}}'), "'w' appears twice"),
    "no offsets": (build({"w": {"dtype": "F32", "shape": [1]}}), "'w' lacks"),
    "size too small": (build({"w": entry(0, 4, [2])}, bytes(4)), r"'w' .* needs 8 bytes, its data_offsets span 4"),
    "huge shape": (build({"w": entry(0, 4, [2**62, 2**62])}, bytes(4)), "'w' .* needs"),
    "negative shape": (build({"w": entry(0, 4, [-1, -1])}, bytes(4)), "'w' has impossible shape"),
    "shape of floats": (build({"w": {**entry(0, 4, [1]), "shape": [1.0]}}, bytes(4)), "impossible shape"),
    "reversed offsets": (build({"w": entry(4, 0, [1])}, bytes(4)), "impossible"),
    "overlap": (
        build({"v": entry(0, 8, [2]), "w": entry(4, 12, [2])}, bytes(12)),
        "'w' at data offset 4 overlaps the tensor before it, which ends at 8",
    ),
    "gap": (build({"w": entry(4, 8, [1])}, bytes(8)), "'w' at data offset 4 leaves a gap"),
    "beyond the end": (build({"w": entry(0, 8, [2])}, bytes(4)), "'w' needs 8 bytes .* but 4 of them"),
    "left over": (build({"w": entry(0, 4, [1])}, bytes(9)), "5 bytes follow the last tensor"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_files_are_refused(tmp_path: Path, lie: str) -> None:
    content, message = LIES[lie]
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CorruptModelError, match=message):
        read_file(tmp_path / "x.safetensors")


@pytest.mark.parametrize("dtype", ["F4", 7, ["F32"]])
def test_unknown_types_are_unsupported(tmp_path: Path, dtype: object) -> None:
    (tmp_path / "x.safetensors").write_bytes(build({"w": entry(0, 4, [1], dtype)}, bytes(4)))
    with pytest.raises(UnsupportedModelError, match="'w' has unknown type"):
        read_file(tmp_path / "x.safetensors")
