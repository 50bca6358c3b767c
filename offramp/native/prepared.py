"""The prepared form of a model in the cache: packed once, found and mapped at every later start.

It is found by the source files' paths, sizes and modification times; its directory names those files and the hash of
the source's tensors. Of several that want to write it, one does, in a file of its own, under a lock that dies with its
process.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import ResourceError
from offramp.model.config import ModelConfig
from offramp.model.tensors import WeightSource
from offramp.native.prepared_file import (
    LAYOUT_VERSION,
    SUFFIX,
    DamagedFileError,
    PreparedWeights,
    open_prepared,
    write_prepared,
)
from offramp.whole_file import PARTIAL, whole_file

ABANDONED_SECONDS = 3600  # a partial file this old has no writer left

log = logging.getLogger("offramp")


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


def prepared_weights(
    source: WeightSource, *, files: Iterable[Path], fmt: str, source_hash: Callable[[], str], folder: Path
) -> PreparedWeights:
    """The prepared form of `source` in `folder`, written now if it isn't there yet.

    `files` are the source's files on disk, `fmt` the requested weight format; `source_hash` is called only when
    writing. Raises ResourceError when the folder can't be written or the disk is full; nothing half written remains.
    """
    origin = Origin(tuple(file.resolve() for file in files), fmt)
    path = _place(origin, folder)
    try:
        with _lock(path):
            return _find(source.config, path) or _make(source, source_hash, origin, path)
    except OSError as error:
        raise _disk_error(error, folder) from error


def known_source_hash(files: Iterable[Path], fmt: str, folder: Path) -> str | None:
    """The hash of a source's tensors, as its prepared form in `folder` tells it; None where there is none.

    Raises OSError if a file of the source is gone.
    """
    path = _place(Origin(tuple(file.resolve() for file in files), fmt), folder)
    try:
        _, directory = open_prepared(path)
    except (DamagedFileError, FileNotFoundError):
        return None
    known: str = directory["source_hash"]
    return known


def read_origin(path: Path) -> Origin | None:
    """What a prepared file was made from; None if it is damaged, or of another version."""
    try:
        _, directory = open_prepared(path)
        return Origin(tuple(Path(name) for name in directory["files"]), directory["format"])
    except (DamagedFileError, OSError, KeyError):
        return None


def _place(origin: Origin, folder: Path) -> Path:
    return folder / f"{origin.key}{SUFFIX}"


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
    except DamagedFileError as damage:
        log.warning("prepared weights %s are damaged (%s): writing them anew", path.name, damage)
        return None


def _make(source: WeightSource, source_hash: Callable[[], str], origin: Origin, path: Path) -> PreparedWeights:
    for left in path.parent.glob(f".{path.stem}.*{PARTIAL}"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    made_from = {"files": [str(file) for file in origin.files], "format": origin.fmt, "source_hash": source_hash()}
    with whole_file(path) as file:
        write_prepared(source, made_from, file)
    return PreparedWeights(source.config, path)


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
