"""The file of packed weights: written once, memory-mapped by all who run the model.

16 bytes of magic; the tensors, each at a multiple of 64; a JSON directory; a footer of two little-endian u64 (directory
offset, directory bytes), the directory's sha256 and 8 bytes of magic. The directory says where each tensor lies and
what the file was made from, the hash of the source's tensors included. Tensor bytes are not hashed again when read.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import ModelConfig
from offramp.model.tensors import Vector, WeightSource, all_roles, is_vector, role_shape
from offramp.native import _native
from offramp.native.large_pages import large_pages_offered, read_into_large_pages
from offramp.native.packed import FORMAT_NAMES, PackedMatrix, pack

HEAD = b"offramp-weights1"
FOOT = b"offw-end"
FOOTER = struct.Struct("<QQ32s8s")
ALIGNMENT = 64
LAYOUT_VERSION = 4  # of this file and of the tiles in csrc/kernels/kernels.h

SUFFIX = ".offw"

_FORMAT_CODES = {name: code for code, name in FORMAT_NAMES.items()}

Progress = Callable[[int], None]
"""Told how many bytes of tensors were written, after each of them."""


class DamagedFileError(Exception):
    """A file of packed weights that can't be used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies."""

    offset: int
    num_bytes: int
    format: int  # a format of the extension; vectors are F32 with in_features 0
    out_features: int
    in_features: int


class PreparedWeights:
    """Packed weights mapped from their file; pages of it come into memory as they are used, or all by `settle`.

    Raises DamagedFileError if the file is damaged or not of that config.
    """

    def __init__(self, config: ModelConfig, path: Path) -> None:
        self._config = config
        self.path = path
        self._data, directory = open_prepared(path)
        self.source_hash: str = directory["source_hash"]
        self.entries: Mapping[str, Entry] = {role: Entry(**fields) for role, fields in directory["tensors"].items()}
        _check_entries(config, self.entries)

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def matrix_formats(self) -> dict[str, str]:
        """The weight format in which each matrix is held, by role."""
        return {role: FORMAT_NAMES[entry.format] for role, entry in self.entries.items() if not is_vector(role)}

    @property
    def formats(self) -> dict[str, int]:
        """How many matrices are held in each weight format."""
        return dict(sorted(Counter(self.matrix_formats.values()).items()))

    def settle(self, spare_bytes: int) -> bool:
        """Move into memory of our own, in large pages, if that takes at most half of what is to spare; whether it did.

        Call it before anything was taken from here.
        """
        size = len(self._data)
        if size > spare_bytes // 2 or not large_pages_offered():
            return False
        held = read_into_large_pages(self.path, size)
        if held is None:
            return False
        self._data = held
        return True

    def matrix(self, role: str) -> PackedMatrix:
        entry = self.entries[role]
        return PackedMatrix(self._bytes(entry), entry.format, entry.out_features, entry.in_features)

    def vector(self, role: str) -> Vector:
        return self._bytes(self.entries[role]).view(np.float32)

    def _bytes(self, entry: Entry) -> NDArray[np.uint8]:
        return self._data[entry.offset : entry.offset + entry.num_bytes]


def write_prepared(
    source: WeightSource, made_from: Mapping[str, object], file: BinaryIO, tell: Progress = lambda num_bytes: None
) -> None:
    """Pack every tensor of `source` into `file`; `made_from`, with its `source_hash`, goes into the directory."""
    file.write(HEAD)
    entries: dict[str, dict[str, int]] = {}
    for role in source.roles():
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        offset = file.tell()
        matrix = _packed(source, role)
        file.write(matrix.tiles.data)
        entries[role] = {
            "offset": offset,
            "num_bytes": matrix.tiles.nbytes,
            "format": matrix.format,
            "out_features": matrix.out_features,
            "in_features": matrix.in_features,
        }
        tell(matrix.tiles.nbytes)
    directory = json.dumps({**made_from, "tensors": entries}).encode()
    start = file.tell()
    file.write(directory)
    file.write(FOOTER.pack(start, len(directory), hashlib.sha256(directory).digest(), FOOT))


def tensor_bytes(config: ModelConfig, role: str, fmt: str) -> int:
    """Bytes of one tensor as it is packed; `fmt` is the format of a matrix."""
    shape = role_shape(config, role)
    return 4 * shape[0] if is_vector(role) else _native.packed_bytes(_FORMAT_CODES[fmt], *shape)


def _packed(source: WeightSource, role: str) -> PackedMatrix:
    """A tensor of the source as the file holds it, vectors too."""
    if not is_vector(role):
        return pack(source.matrix(role))
    values = np.ascontiguousarray(source.vector(role), dtype=np.float32)
    return PackedMatrix(values.view(np.uint8), _native.F32, len(values), 0)


def open_prepared(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The mapped bytes and the directory, which is as we wrote it. Raises DamagedFileError or OSError."""
    size = path.stat().st_size
    if size < len(HEAD) + FOOTER.size:
        raise DamagedFileError(f"{size} bytes")
    data = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    start, length, digest, foot = FOOTER.unpack(data[-FOOTER.size :].tobytes())
    if data[: len(HEAD)].tobytes() != HEAD or foot != FOOT or start + length + FOOTER.size != size:
        raise DamagedFileError("wrong magic or sizes")
    text = data[start : start + length].tobytes()
    if hashlib.sha256(text).digest() != digest:
        raise DamagedFileError("its directory has changed")
    return data, json.loads(text)


def _check_entries(config: ModelConfig, entries: Mapping[str, Entry]) -> None:
    """The tensors are those that the config calls for: a file whose name is right may belong to another time."""
    if list(entries) != all_roles(config):
        raise DamagedFileError("it holds other tensors")
    for role, entry in entries.items():
        shape = role_shape(config, role)
        if shape != ((entry.out_features,) if is_vector(role) else (entry.out_features, entry.in_features)):
            raise DamagedFileError(f"{role} has another shape")
        if entry.num_bytes != _num_bytes(entry) or entry.offset % ALIGNMENT:
            raise DamagedFileError(f"{role} has another size")


def _num_bytes(entry: Entry) -> int:
    if entry.in_features == 0:
        return 4 * entry.out_features
    return _native.packed_bytes(entry.format, entry.out_features, entry.in_features)
