"""An exit pack on disk: a folder with `config.json` and `exits.safetensors`, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from offramp.errors import InvalidRequestError, ModelNotFoundError, OfframpError, ResourceError
from offramp.exits.pack import ExitHead, ExitPack
from offramp.exits.pack_config import PackConfig
from offramp.exits.pack_tensors import PackTensors, stored
from offramp.exits.shipped import pack_folder, shipped_packs
from offramp.model.heads import HeadWeights
from offramp.model.mapping import map_file
from offramp.model.metadata import Fields, read_json
from offramp.model.safetensors import read_file
from offramp.whole_file import PARTIAL

CONFIG_FILE = "config.json"
TENSOR_FILE = "exits.safetensors"
CALIBRATION_FILE = "calibration.json"


def read_pack(place: str | Path) -> ExitPack:
    """The pack in a folder, or shipped under a name, copied into memory and checked against its own config.

    Raises ModelNotFoundError if there is none, CorruptModelError naming field or tensor and sizes for a damaged one.
    """
    folder = pack_folder(place)
    if not folder.is_dir():
        names = f"; by name there are: {', '.join(shipped_packs())}" if shipped_packs() else ""
        raise ModelNotFoundError(
            f"no exit pack {folder}: {'a file' if folder.exists() else 'no such folder'}",
            hint=f"a pack is a folder with {CONFIG_FILE} and {TENSOR_FILE}{names}",
        )
    config = _read_config(folder / CONFIG_FILE)
    tensors = PackTensors(read_file(folder / TENSOR_FILE), str(folder / TENSOR_FILE))
    vocabularies = tensors.vocabularies(config)
    shared = {id(ids): HeadWeights(vocab_ids=ids) for ids in vocabularies.values()}  # one for each that is different
    exits = {
        layer: ExitHead(
            shared[id(ids)] if config.kind == "shared" else tensors.head(layer, config, ids),
            tensors.predictor(layer, config),
        )
        for layer, ids in vocabularies.items()
    }
    tensors.check_all_taken()
    return ExitPack(config=config, exits=exits, folder=folder, identity=_identity(folder))


def write_pack(folder: Path, pack: ExitPack) -> ExitPack:
    """Write a pack whole or not at all, in the place of one that is there; the pack as it reads back.

    f32 matrices become f16. Raises InvalidRequestError if the folder holds anything but a pack, ResourceError if it
    can't be written, CorruptModelError for what no one could read.
    """
    folder = folder.absolute()
    check_pack_target(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=PARTIAL, dir=folder.parent))
        try:
            _write(scratch / "new", pack)
            read_pack(scratch / "new")
            _swap(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ResourceError(
            f"can't write the exit pack {folder}: {error.strerror or error}", hint="check the folder and the disk"
        ) from error
    return read_pack(folder)


def check_pack_target(folder: Path) -> None:
    """Raise InvalidRequestError if a pack can't take that place: long training should ask before it begins."""
    try:
        strangers = {path.name for path in folder.iterdir()} - {CONFIG_FILE, TENSOR_FILE, CALIBRATION_FILE}
        if not strangers and (folder / CONFIG_FILE).exists():
            _read_config(folder / CONFIG_FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_place(folder, error.strerror or str(error)) from error
    except OfframpError as error:
        raise _no_place(folder, error.message) from error
    if strangers:
        raise _no_place(folder, f"it holds {min(strangers)}")


def _read_config(path: Path) -> PackConfig:
    return PackConfig.read(Fields(read_json(path).values, str(path)))


def _no_place(folder: Path, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{folder} can't become an exit pack: {reason}", hint="name a new folder, or one with a pack to replace"
    )


def _write(folder: Path, pack: ExitPack) -> None:
    from safetensors.numpy import save

    folder.mkdir()
    try:
        text = json.dumps(pack.config.fields(), indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the pack's provenance is no JSON: {error}", hint="give texts, finite numbers, lists and objects"
        ) from error
    _write_file(folder / TENSOR_FILE, save(stored(pack.config, pack.exits)))
    _write_file(folder / CONFIG_FILE, text.encode())


def _write_file(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(scratch: Path, folder: Path) -> None:
    """Put the new pack where the old one was; a calibration of the old one goes with it."""
    old = scratch / "old"
    if folder.exists():
        folder.rename(old)
    try:
        (scratch / "new").rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def _identity(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, TENSOR_FILE):
        data = map_file(folder / name)
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data.data)
    return digest.hexdigest()
