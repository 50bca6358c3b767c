"""GGUF files, versions 2 and 3: metadata and a checked tensor directory over a memory map.

Nothing in the file is believed: counts, lengths, sizes and offsets are checked against the bytes present before
anything is read or allocated, so a lying header costs no memory and no time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.mapping import TRUNCATED_HINT, map_file
from offramp.model.stored import Bytes, StoredTensor

MetadataValue: TypeAlias = bool | int | float | str | list["MetadataValue"]

MAGIC = b"GGUF"
MAX_DIMENSIONS = 4
MAX_NESTING = 4  # arrays of arrays
DEFAULT_ALIGNMENT = 32

_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    30: ("BF16", 1, 2),
}
"""Tensor type id -> name, values a block, bytes a block, of the types read directly."""

_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MIN_ENTRY = 8 + 4 + 1  # bytes of the shortest metadata entry: name length, type, value
_MIN_TENSOR = 8 + 4 + 8 + 4 + 8  # name length, dimension count, one dimension, type, offset


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What one file holds; tensor data stays on disk until it is touched."""

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, StoredTensor]


def read_gguf(path: Path) -> GgufFile:
    """Open and check a file. Raises ModelNotFoundError, CorruptModelError or UnsupportedModelError."""
    cursor = _Cursor(map_file(path), path.name)
    version = _read_version(cursor)
    num_tensors, num_entries = cursor.unsigned(8, "the tensor count"), cursor.unsigned(8, "the metadata count")
    cursor.check_count(num_tensors, _MIN_TENSOR, "tensors")
    cursor.check_count(num_entries, _MIN_ENTRY, "metadata entries")
    metadata = _read_metadata(cursor, num_entries)
    entries = [_read_entry(cursor) for _ in range(num_tensors)]
    tensors = _place_tensors(cursor, entries, _alignment(metadata, path.name))
    return GgufFile(path, version, metadata, tensors)


class _Cursor:
    """Reads the header front to back; every read is checked against the bytes left."""

    def __init__(self, data: Bytes, where: str) -> None:
        self.data = data
        self.view = data.data
        self.where = where
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.view) - self.at

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise CorruptModelError(
                f"{self.where} ends inside {what}: {size} bytes needed at offset {self.at}, {self.left} present",
                hint=TRUNCATED_HINT,
            )
        self.at += size
        return bytes(self.view[self.at - size : self.at])

    def unsigned(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def text(self, what: str) -> str:
        raw = self.take(self.unsigned(8, what), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptModelError(f"{self.where}: {what} is not UTF-8 text", hint=TRUNCATED_HINT) from error

    def check_count(self, count: int, smallest: int, what: str) -> None:
        if count * smallest > self.left:
            raise CorruptModelError(
                f"{self.where}: {count} {what} announced, at least {count * smallest} bytes, but {self.left} present",
                hint=TRUNCATED_HINT,
            )


def _read_version(cursor: _Cursor) -> int:
    magic = cursor.take(min(4, cursor.left), "the magic number")
    if magic != MAGIC:
        raise CorruptModelError(
            f"{cursor.where} is not a GGUF file: it starts with {magic!r}",
            hint="give a .gguf file or a model directory",
        )
    version = cursor.unsigned(4, "the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
        kind = "big-endian GGUF" if swapped else f"GGUF version {version}"
        raise UnsupportedModelError(
            f"{cursor.where}: {kind} is not supported", hint="convert it to little-endian GGUF version 3"
        )
    return version


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for _ in range(count):
        name = cursor.text("a metadata name")
        if name in metadata:
            raise CorruptModelError(f"{cursor.where}: metadata {name!r} appears twice", hint=TRUNCATED_HINT)
        kind = cursor.unsigned(4, f"the type of {name!r}")
        metadata[name] = _read_value(cursor, kind, f"metadata {name!r}", MAX_NESTING)
    return metadata


def _read_value(cursor: _Cursor, kind: int, what: str, nesting: int) -> MetadataValue:
    if kind in _SCALARS:
        return _read_scalars(cursor, kind, 1, what)[0]
    if kind == _STRING:
        return cursor.text(what)
    if kind != _ARRAY or nesting == 0:
        problem = "arrays nested too deeply" if kind == _ARRAY else f"unknown type {kind}"
        raise CorruptModelError(f"{cursor.where}: {what} has {problem}", hint=TRUNCATED_HINT)
    element, count = cursor.unsigned(4, what), cursor.unsigned(8, what)
    if element in _SCALARS:
        return _read_scalars(cursor, element, count, what)
    cursor.check_count(count, 8, f"elements of {what}")
    if element == _STRING:
        return [cursor.text(what) for _ in range(count)]
    return [_read_value(cursor, element, what, nesting - 1) for _ in range(count)]


def _read_scalars(cursor: _Cursor, kind: int, count: int, what: str) -> list[MetadataValue]:
    dtype = np.dtype(_SCALARS[kind])
    values = np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype)
    plain: list[MetadataValue] = (values != 0).tolist() if kind == _BOOL else values.tolist()
    return plain


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the tensor directory, before its place in the file is checked."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # outermost first; the file has it the other way round
    size: int  # bytes
    offset: int  # bytes from the start of the data section


def _read_entry(cursor: _Cursor) -> _Entry:
    name = cursor.text("a tensor name")
    what = f"the entry of tensor {name!r}"
    num_dims = cursor.unsigned(4, what)
    if not 1 <= num_dims <= MAX_DIMENSIONS:
        raise CorruptModelError(
            f"{cursor.where}: tensor {name!r} has {num_dims} dimensions", hint=f"1 to {MAX_DIMENSIONS} are possible"
        )
    shape = tuple(struct.unpack(f"<{num_dims}Q", cursor.take(8 * num_dims, what)))[::-1]
    dtype, block, block_bytes = _tensor_type(cursor.unsigned(4, what), name, cursor.where)
    if 0 in shape or shape[-1] % block:
        raise CorruptModelError(
            f"{cursor.where}: tensor {name!r} of type {dtype} can't have shape {list(shape)}",
            hint=f"rows of {dtype} hold a positive multiple of {block} values",
        )
    size = math.prod(shape) // block * block_bytes
    return _Entry(name, dtype, shape, size, cursor.unsigned(8, what))


def _tensor_type(number: int, name: str, where: str) -> tuple[str, int, int]:
    """Name, values a block and bytes a block of a tensor type; rare ones are looked up in the gguf package."""
    if number in _TYPES:
        return _TYPES[number]
    from gguf.constants import GGML_QUANT_SIZES  # slow to import

    known = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    if number not in known:
        raise UnsupportedModelError(
            f"{where}: tensor {name!r} has unknown type {number}", hint="use a GGUF file of a common quantization"
        )
    return known[number]


def _alignment(metadata: Mapping[str, MetadataValue], where: str) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1) or value > 2**20:
        raise CorruptModelError(
            f"{where}: general.alignment={value!r} is impossible", hint="the alignment is a power of two"
        )
    return value


def _place_tensors(cursor: _Cursor, entries: list[_Entry], alignment: int) -> dict[str, StoredTensor]:
    """Check offsets (aligned, inside the file, not overlapping) and cut each tensor's view."""
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    previous: _Entry | None = None
    for entry in sorted(entries, key=lambda e: (e.offset, e.size)):
        _check_place(entry, previous, alignment, len(cursor.data) - start, cursor.where)
        if entry.name in tensors:
            raise CorruptModelError(f"{cursor.where}: tensor {entry.name!r} appears twice", hint=TRUNCATED_HINT)
        begin = start + entry.offset
        data = cursor.data[begin : begin + entry.size]
        tensors[entry.name] = StoredTensor(entry.name, entry.dtype, entry.shape, data)
        previous = entry
    return tensors


def _check_place(entry: _Entry, previous: _Entry | None, alignment: int, present: int, where: str) -> None:
    name, end = entry.name, entry.offset + entry.size
    if entry.offset % alignment:
        raise CorruptModelError(
            f"{where}: tensor {name!r} starts at data offset {entry.offset}",
            hint=f"offsets are multiples of {alignment}",
        )
    if end > present:
        raise CorruptModelError(
            f"{where}: tensor {name!r} needs {entry.size} bytes at data offset {entry.offset}, "
            f"but {max(0, present - entry.offset)} of them are present",
            hint=TRUNCATED_HINT,
        )
    if previous and previous.offset + previous.size > entry.offset:
        raise CorruptModelError(f"{where}: tensors {previous.name!r} and {name!r} overlap", hint=TRUNCATED_HINT)
