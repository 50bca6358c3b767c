"""An exit pack on disk: a folder with `config.json` and `exits.safetensors`, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from offramp.exits.pack import ExitHead, ExitPack
from offramp.exits.pack_config import PackConfig
from offramp.exits.pack_tensors import PackTensors, stored
from offramp.model.heads import HeadWeights
from offramp.model.metadata import Fields, read_json
from offramp.model.pack_folder import (
    CONFIG_FILE,
    check_target,
    check_there,
    config_text,
    files_identity,
    replace_folder,
)
from offramp.model.safetensors import read_file
from offramp.model.shipped import pack_folder, told_names

TENSOR_FILE = "exits.safetensors"
CALIBRATION_FILE = "calibration.json"


def read_pack(place: str | Path) -> ExitPack:
    """The pack in a folder, or shipped under a name, copied into memory and checked against its own config.

    Raises ModelNotFoundError if there is none, CorruptModelError naming field or tensor and sizes for a damaged one.
    """
    folder = pack_folder("exits", place)
    check_there(folder, what="exit pack", tensor_file=TENSOR_FILE, more=told_names("exits"))
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
    identity = files_identity(folder, (CONFIG_FILE, TENSOR_FILE))
    return ExitPack(config=config, exits=exits, folder=folder, identity=identity)


def write_pack(folder: Path, pack: ExitPack) -> ExitPack:
    """Write a pack whole or not at all, in the place of one that is there; the pack as it reads back.

    f32 matrices become f16. Raises InvalidRequestError if the folder holds anything but a pack, ResourceError if it
    can't be written, CorruptModelError for what no one could read.
    """
    from safetensors.numpy import save

    folder = folder.absolute()
    check_pack_target(folder)
    files = {CONFIG_FILE: config_text(pack.config.fields()), TENSOR_FILE: save(stored(pack.config, pack.exits))}
    replace_folder(folder, files, what="the exit pack", check=read_pack)
    return read_pack(folder)


def check_pack_target(folder: Path) -> None:
    """Raise InvalidRequestError if a pack can't take that place: long training should ask before it begins."""
    known = {CONFIG_FILE, TENSOR_FILE, CALIBRATION_FILE}
    check_target(folder, known, what="an exit pack", read_config=_read_config)


def _read_config(path: Path) -> PackConfig:
    return PackConfig.read(Fields(read_json(path).values, str(path)))
