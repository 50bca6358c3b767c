"""The GGUF reader: what is written is read back, and every damaged or lying file is refused by name."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import CorruptModelError, ModelError, ModelNotFoundError, UnsupportedModelError
from offramp.model.gguf import read_gguf
from offramp.model.stored import decode_rows
from offramp.testing.checkpoints import role_values, write_gguf
from offramp.testing.toy import toy_config, toy_source

Write = Callable[[bytes], Path]
Tensor = tuple[str, tuple[int, ...], int, int]  # name, dimensions in file order, type, data offset


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def build(
    tensors: tuple[Tensor, ...] = (("w", (32,), 0, 0),),
    *,
    metadata: tuple[bytes, ...] = (),
    data: bytes = bytes(128),
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_entries: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A GGUF file byte by byte, so that any field can lie."""
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(metadata) if num_entries is None else num_entries,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(metadata)
    for name, dims, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
    return head + bytes(-len(head) % alignment) + data


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_bytes(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write_bytes


@pytest.fixture(scope="module")
def toy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(num_layers=2)
    return write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf", config, role_values(toy_source(config, 1)))


def test_every_metadata_type_is_read(write: Write) -> None:
    scalars = {
        0: ("B", 200), 1: ("b", -3), 2: ("H", 60000), 3: ("h", -300), 4: ("I", 2**32 - 1), 5: ("i", -7),
        6: ("f", 0.5), 7: ("?", True), 10: ("Q", 2**64 - 1), 11: ("q", -(2**62)), 12: ("d", 1e300),
    }  # fmt: skip
    entries = [entry(f"k{kind}", kind, struct.pack("<" + code, value)) for kind, (code, value) in scalars.items()]
    entries.append(entry("text", 8, text("häagen")))
    entries.append(entry("texts", 9, struct.pack("<IQ", 8, 2) + text("a") + text("")))
    entries.append(entry("flags", 9, struct.pack("<IQ??", 7, 2, True, False)))
    entries.append(entry("nested", 9, struct.pack("<IQIQII", 9, 1, 4, 2, 5, 6)))
    file = read_gguf(write(build(metadata=tuple(entries))))
    expected: dict[str, object] = {f"k{kind}": value for kind, (_, value) in scalars.items()}
    expected |= {"text": "häagen", "texts": ["a", ""], "flags": [True, False], "nested": [[5, 6]]}
    assert file.metadata == expected
    assert file.metadata["k7"] is True


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_are_views_with_the_outermost_dimension_first(write: Write, version: int) -> None:
    values = np.arange(96, dtype="<f4")
    file = read_gguf(write(build((("w", (32, 3), 0, 0),), data=values.tobytes(), version=version)))
    tensor = file.tensors["w"]
    assert (file.version, tensor.shape, tensor.dtype) == (version, (3, 32), "F32")
    assert (decode_rows(tensor, 1, 3) == values.reshape(3, 32)[1:]).all()
    assert not tensor.data.flags.writeable


def test_alignment_key_is_honoured(write: Write) -> None:
    key = entry("general.alignment", 4, struct.pack("<I", 8))
    values = struct.pack("<2f", 1.5, 2.5)
    content = build((("w", (2,), 0, 8),), metadata=(key,), data=bytes(8) + values, alignment=8)
    assert decode_rows(read_gguf(write(content)).tensors["w"], 0, 1).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize("keep", [0.1, 0.5])
def test_truncated_files_are_refused_naming_tensor_and_sizes(toy_file: Path, write: Write, keep: float) -> None:
    """B87: cut at 10 % and 50 %."""
    content = toy_file.read_bytes()
    with pytest.raises(CorruptModelError, match=r"tensor '.*' needs \d+ bytes at data offset \d+, but \d+ of them"):
        read_gguf(write(content[: int(len(content) * keep)]))


def test_a_file_cut_by_one_byte_is_refused(toy_file: Path, write: Write) -> None:
    """B87: the last tensor, by name, lacks one byte."""
    content = toy_file.read_bytes()
    last = max(read_gguf(toy_file).tensors.values(), key=lambda t: t.data.__array_interface__["data"][0])
    with pytest.raises(
        CorruptModelError, match=f"'{last.name}' needs {last.data.size} .* {last.data.size - 1} of them"
    ):
        read_gguf(write(content[:-1]))


def test_every_cut_of_the_header_is_refused(write: Write) -> None:
    content = build(metadata=(entry("k", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),))
    for size in range(len(content)):
        with pytest.raises(CorruptModelError):
            read_gguf(write(content[:size]))
    read_gguf(write(content))


FOUR = struct.pack("<I", 4)

LIES: dict[str, tuple[bytes, str]] = {
    "bad magic": (build(magic=b"GGML"), "not a GGUF file"),
    "a zip": (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
    "short text": (b"hi", "not a GGUF file"),
    "tensor offset beyond the end": (build((("w", (32,), 0, 128),)), "'w' needs 128 bytes at data offset 128, but 0"),
    "huge offset": (build((("w", (32,), 0, 2**63),)), "'w' needs 128 bytes"),
    "unaligned offset": (build((("w", (8,), 0, 4),)), "'w' starts at data offset 4"),
    "dimension overflow": (build((("w", (2**32, 2**32), 0, 0),)), r"'w' needs 73786976294838206464 bytes"),
    "wrapping dimensions": (build((("w", (2**63, 2), 0, 0),)), "'w' needs"),
    "zero dimension": (build((("w", (0, 4), 0, 0),)), r"can't have shape \[4, 0\]"),
    "no dimension": (build((("w", (), 0, 0),), metadata=()), "'w' has 0 dimensions"),
    "five dimensions": (build((("w", (1, 1, 1, 1, 1), 0, 0),)), "'w' has 5 dimensions"),
    "block size mismatch": (build((("w", (40,), 8, 0),)), r"type Q8_0 can't have shape \[40\]"),
    "overlap": (build((("w", (32,), 0, 0), ("v", (32,), 0, 64)), data=bytes(256)), "'w' and 'v' overlap"),
    "same place": (build((("w", (32,), 0, 0), ("v", (32,), 0, 0))), "overlap"),
    "duplicate tensor": (build((("w", (32,), 0, 0), ("w", (32,), 0, 128)), data=bytes(256)), "'w' appears twice"),
    "duplicate key": (build(metadata=(entry("k", 4, FOUR), entry("k", 4, FOUR))), "'k' appears twice"),
    "unknown value type": (build(metadata=(entry("k", 99, FOUR),)), "'k' has unknown type 99"),
    "unknown element type": (build(metadata=(entry("k", 9, struct.pack("<IQI", 77, 1, 0)),)), "unknown type 77"),
    "not utf-8": (build(metadata=(entry("k", 8, struct.pack("<Q", 2) + b"\xff\xff"),)), "not UTF-8"),
    "alignment zero": (build(metadata=(entry("general.alignment", 4, bytes(4)),)), "general.alignment=0"),
    "alignment text": (build(metadata=(entry("general.alignment", 8, text("32")),)), "general.alignment='32'"),
    "more tensors than written": (build(num_tensors=2), "tensor '' has 0 dimensions"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_files_are_refused(write: Write, lie: str) -> None:
    content, message = LIES[lie]
    with pytest.raises(CorruptModelError, match=message) as caught:
        read_gguf(write(content))
    assert caught.value.hint


def test_huge_counts_cost_neither_memory_nor_time(write: Write) -> None:
    nested = b"".join(struct.pack("<IQ", 9, 1) for _ in range(50))
    huge = [
        build(num_tensors=2**63),
        build(num_entries=2**64 - 1),
        build(metadata=(struct.pack("<Q", 2**60) + b"name",)),
        build(metadata=(entry("k", 8, struct.pack("<Q", 2**62)),)),
        build(metadata=(entry("k", 9, struct.pack("<IQ", 4, 2**61)),)),
        build(metadata=(entry("k", 9, struct.pack("<IQ", 8, 2**60)),)),
        build(metadata=(entry("k", 9, nested),)),
    ]
    start = time.monotonic()
    tracemalloc.start()
    for content in huge:
        with pytest.raises(CorruptModelError):
            read_gguf(write(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert time.monotonic() - start < 2.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (build(version=1), "GGUF version 1"),
        (build(version=99), "GGUF version 99"),
        (build(version=3 << 24), "big-endian"),
        (build((("w", (32,), 5, 0),)), "'w' has unknown type 5"),
        (build((("w", (32,), 1000, 0),)), "'w' has unknown type 1000"),
    ],
)
def test_unknown_versions_and_types_are_unsupported(write: Write, content: bytes, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        read_gguf(write(content))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No such file"):
        read_gguf(tmp_path / "none.gguf")


def test_flipped_header_bytes_never_crash(write: Write) -> None:
    """Any single byte of the header may be wrong: the file is read or refused, both of them often, and nothing else."""
    content = build(
        (("w", (32,), 0, 0), ("v", (32, 2), 3, 128)),
        metadata=(
            entry("general.alignment", 4, struct.pack("<I", 32)),
            entry("k", 9, struct.pack("<IQ2I", 4, 2, 1, 2)),
        ),
        data=bytes(256),
    )
    rng = np.random.default_rng(0)
    num_read, num_refused = 0, 0
    for at in range(len(content) - 256):
        damaged = bytearray(content)
        damaged[at] ^= int(rng.integers(1, 256))
        try:
            read_gguf(write(bytes(damaged)))
            num_read += 1
        except ModelError:
            num_refused += 1
    assert num_read > 20
    assert num_refused > 20
