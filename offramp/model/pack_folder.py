"""A pack on disk: a folder with a config and tensors that belong to one model, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from offramp.errors import InvalidRequestError, ModelNotFoundError, OfframpError, ResourceError
from offramp.model.mapping import map_file
from offramp.whole_file import PARTIAL

CONFIG_FILE = "config.json"


def check_there(folder: Path, *, what: str, tensor_file: str, more: str = "") -> None:
    """Raise ModelNotFoundError if there is no such folder; `more` ends the hint."""
    if not folder.is_dir():
        raise ModelNotFoundError(
            f"no {what} {folder}: {'a file' if folder.exists() else 'no such folder'}",
            hint=f"a pack is a folder with {CONFIG_FILE} and {tensor_file}{more}",
        )


def config_text(fields: Mapping[str, object]) -> bytes:
    """The config as its file holds it. Raises InvalidRequestError for a provenance that is no JSON."""
    try:
        return json.dumps(fields, indent=1, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the pack's provenance is no JSON: {error}", hint="give texts, finite numbers, lists and objects"
        ) from error


def replace_folder(folder: Path, files: Mapping[str, bytes], *, what: str, check: Callable[[Path], object]) -> None:
    """Write the files to a folder that takes the place of what is there, once `check` could read it.

    `what` it is, for people. Raises ResourceError if it can't be written, and what `check` raises.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=PARTIAL, dir=folder.parent))
        try:
            new = scratch / "new"
            new.mkdir()
            for name, content in files.items():
                write_file(new / name, content)
            check(new)
            _swap(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ResourceError(
            f"can't write {what} {folder}: {error.strerror or error}", hint="check the folder and the disk"
        ) from error


def check_target(folder: Path, known: Collection[str], *, what: str, read_config: Callable[[Path], object]) -> None:
    """Raise InvalidRequestError if a pack can't take that place: it holds other files than known ones, or no pack."""
    try:
        strangers = {path.name for path in folder.iterdir()} - set(known)
        if not strangers and (folder / CONFIG_FILE).exists():
            read_config(folder / CONFIG_FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_place(folder, what, error.strerror or str(error)) from error
    except OfframpError as error:
        raise _no_place(folder, what, error.message) from error
    if strangers:
        raise _no_place(folder, what, f"it holds {min(strangers)}")


def files_identity(folder: Path, names: Collection[str]) -> str:
    """The sha256, in hex, of these files together."""
    digest = hashlib.sha256()
    for name in names:
        data = map_file(folder / name)
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data.data)
    return digest.hexdigest()


def write_file(path: Path, content: bytes) -> None:
    """A new file, on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _no_place(folder: Path, what: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{folder} can't become {what}: {reason}", hint="name a new folder, or one with a pack to replace"
    )


def _swap(scratch: Path, folder: Path) -> None:
    """Put the new pack where the old one was; what else lay beside the old one goes with it."""
    old = scratch / "old"
    if folder.exists():
        folder.rename(old)
    try:
        (scratch / "new").rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
