"""The prepared form of a model: packed weights in one file, written once and memory-mapped at every later start.

File: 16 bytes of magic; the tensors, each at a multiple of 64; a JSON directory; a footer of two little-endian u64
(directory offset, directory bytes), the directory's sha256 and 8 bytes of magic. It is found by the source files'
paths, sizes and modification times; its directory names those files and the hash of the source's tensors. Of several
that want to write it, one does, in a file of its own, under a lock that dies with its process. Tensor bytes are not
hashed again at each start.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from offramp.errors import ResourceError
from offramp.model.config import ModelConfig
from offramp.model.tensors import Vector, WeightSource, all_roles, is_vector, role_shape
from offramp.native import _native
from offramp.native.large_pages import large_pages_offered, read_into_large_pages
from offramp.native.packed import FORMAT_NAMES, PackedMatrix, pack
from offramp.whole_file import PARTIAL, whole_file

HEAD = b"offramp-weights1"
FOOT = b"offw-end"
FOOTER = struct.Struct("<QQ32s8s")
ALIGNMENT = 64
LAYOUT_VERSION = 4  # of this file and of the tiles in csrc/kernels/kernels.h

SUFFIX = ".offw"
ABANDONED_SECONDS = 3600  # a partial file this old has no writer left

log = logging.getLogger("offramp")


class _DamagedFileError(Exception):
    """A prepared file that can't be used; it is written anew."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a prepared file was made from: the source's files, with their full paths, and the format asked for."""

    files: tuple[Path, ...]
    fmt: str

    @property
    def model(self) -> Path:
        """The model's own path: its one GGUF file, or the folder of its files."""
        return self.files[0] if len(self.files) == 1 else self.files[0].parent

    @property
    def key(self) -> str:
        """The prepared file's name without its suffix. Raises OSError if a file is gone."""
        digest = hashlib.sha256(f"{LAYOUT_VERSION}:{self.fmt}".encode())
        for file in self.files:
            status = file.stat()
            digest.update(f"\n{file}:{status.st_size}:{status.st_mtime_ns}".encode(errors="surrogateescape"))
        return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    num_bytes: int
    format: int  # a format of the extension; vectors are F32 with in_features 0
    out_features: int
    in_features: int


class PreparedWeights:
    """Packed weights mapped from a prepared file; pages of it come into memory as they are used, or all by `settle`."""

    def __init__(self, config: ModelConfig, path: Path) -> None:
        self._config = config
        self.path = path
        self._data, directory = _open(path)
        self.source_hash: str = directory["source_hash"]
        self._entries = {role: _Entry(**fields) for role, fields in directory["tensors"].items()}
        _check_entries(config, self._entries)

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def formats(self) -> dict[str, int]:
        """How many matrices are held in each weight format."""
        held = Counter(FORMAT_NAMES[entry.format] for role, entry in self._entries.items() if not is_vector(role))
        return dict(sorted(held.items()))

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
        entry = self._entries[role]
        return PackedMatrix(self._bytes(entry), entry.format, entry.out_features, entry.in_features)

    def vector(self, role: str) -> Vector:
        return self._bytes(self._entries[role]).view(np.float32)

    def _bytes(self, entry: _Entry) -> NDArray[np.uint8]:
        return self._data[entry.offset : entry.offset + entry.num_bytes]


def prepared_weights(
    source: WeightSource, *, files: Iterable[Path], fmt: str, source_hash: Callable[[], str], folder: Path
) -> PreparedWeights:
    """The prepared form of `source` in `folder`, written now if it isn't there yet.

    `files` are the source's files on disk, `fmt` the requested weight format; `source_hash` is called only when
    writing. Raises ResourceError when the folder can't be written or the disk is full; nothing half written remains.
    """
    origin = Origin(tuple(file.resolve() for file in files), fmt)
    path = folder / f"{origin.key}{SUFFIX}"
    try:
        with _lock(path):
            return _find(source.config, path) or _make(source, source_hash, origin, path)
    except OSError as error:
        raise _disk_error(error, folder) from error


def read_origin(path: Path) -> Origin | None:
    """What a prepared file was made from; None if it is damaged, or of another version."""
    try:
        _, directory = _open(path)
        return Origin(tuple(Path(name) for name in directory["files"]), directory["format"])
    except (_DamagedFileError, OSError, KeyError):
        return None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process or thread at a time prepares `path`; no lock is needed once it is there."""
    if path.exists():
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _find(config: ModelConfig, path: Path) -> PreparedWeights | None:
    if not path.exists():
        return None
    try:
        return PreparedWeights(config, path)
    except _DamagedFileError as damage:
        log.warning("prepared weights %s are damaged (%s): writing them anew", path.name, damage)
        return None


def _make(source: WeightSource, source_hash: Callable[[], str], origin: Origin, path: Path) -> PreparedWeights:
    for left in path.parent.glob(f".{path.stem}.*{PARTIAL}"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    with whole_file(path) as file:
        _write(source, source_hash(), origin, file)
    return PreparedWeights(source.config, path)


def _write(source: WeightSource, source_hash: str, origin: Origin, file: BinaryIO) -> None:
    file.write(HEAD)
    entries: dict[str, dict[str, int]] = {}
    for role in source.roles():
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        offset = file.tell()
        if is_vector(role):
            values = np.ascontiguousarray(source.vector(role), dtype=np.float32)
            matrix = PackedMatrix(values.view(np.uint8), _native.F32, len(values), 0)
        else:
            matrix = pack(source.matrix(role))
        file.write(matrix.tiles.data)
        entries[role] = {
            "offset": offset,
            "num_bytes": matrix.tiles.nbytes,
            "format": matrix.format,
            "out_features": matrix.out_features,
            "in_features": matrix.in_features,
        }
    made_from = {"files": [str(path) for path in origin.files], "format": origin.fmt, "source_hash": source_hash}
    directory = json.dumps({**made_from, "tensors": entries}).encode()
    start = file.tell()
    file.write(directory)
    file.write(FOOTER.pack(start, len(directory), hashlib.sha256(directory).digest(), FOOT))


def _open(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The mapped bytes and the directory, which is as we wrote it."""
    size = path.stat().st_size
    if size < len(HEAD) + FOOTER.size:
        raise _DamagedFileError(f"{size} bytes")
    data = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    start, length, digest, foot = FOOTER.unpack(data[-FOOTER.size :].tobytes())
    if data[: len(HEAD)].tobytes() != HEAD or foot != FOOT or start + length + FOOTER.size != size:
        raise _DamagedFileError("wrong magic or sizes")
    text = data[start : start + length].tobytes()
    if hashlib.sha256(text).digest() != digest:
        raise _DamagedFileError("its directory has changed")
    return data, json.loads(text)


def _check_entries(config: ModelConfig, entries: Mapping[str, _Entry]) -> None:
    """The tensors are those that the config calls for: a file whose name is right may belong to another time."""
    if list(entries) != all_roles(config):
        raise _DamagedFileError("it holds other tensors")
    for role, entry in entries.items():
        shape = role_shape(config, role)
        if shape != ((entry.out_features,) if is_vector(role) else (entry.out_features, entry.in_features)):
            raise _DamagedFileError(f"{role} has another shape")
        if entry.num_bytes != _num_bytes(entry) or entry.offset % ALIGNMENT:
            raise _DamagedFileError(f"{role} has another size")


def _num_bytes(entry: _Entry) -> int:
    if entry.in_features == 0:
        return 4 * entry.out_features
    return _native.packed_bytes(entry.format, entry.out_features, entry.in_features)


def _disk_error(error: OSError, folder: Path) -> ResourceError:
    if error.errno == errno.ENOSPC:
        return ResourceError(
            f"no space left in {folder} for the prepared weights",
            hint="free some space, or set OFFRAMP_CACHE to a folder on another disk",
        )
    return ResourceError(
        f"can't write prepared weights in {folder}: {error.strerror or error}",
        hint="set OFFRAMP_CACHE to a folder that can be written",
    )
