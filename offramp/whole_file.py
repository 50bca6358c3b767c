"""Write a file or a folder whole or not at all, whoever is killed and however many write it at once."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""How names end of what is being written; a killed writer leaves one behind."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end, on disk; nothing of it stays after an exception.

    Each writer has a file of its own, `.NAME.*.partial` beside `path`. Raises OSError.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` at the end, its files on disk; nothing of it stays after an exception.

    `path` must not be there yet, or be an empty folder. What killed writers of it left is swept. Raises OSError.
    """
    _sweep(path)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    new.mkdir()
    partial = new.with_name(new.name + PARTIAL)
    handle = os.open(new, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # for as long as its writer lives
        new.rename(partial)
        yield partial
        for file in partial.rglob("*"):
            _to_disk(file)
        partial.rename(path)
    finally:
        os.close(handle)
        shutil.rmtree(partial, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Delete folders of writers that no longer hold their lock."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}/"):
        with suppress(OSError):  # its writer lives, or has just finished
            handle = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(handle)


def _to_disk(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
