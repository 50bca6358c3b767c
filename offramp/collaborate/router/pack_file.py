"""A router pack on disk: a folder with `config.json` and `router.safetensors`, written whole or not at all.

Tensors: those of its kind, and `sample`, the scores of the calibration's prompts, rising. `sha256` in the config is the
hash of the tensors' file and of the config's other fields: thresholds promise something of these numbers alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.pack import RouterPack
from offramp.collaborate.router.pack_config import SHA256, RouterConfig
from offramp.collaborate.threshold import ThresholdCalibration, bounded
from offramp.errors import CorruptModelError
from offramp.model.mapping import map_file
from offramp.model.metadata import Fields, read_json
from offramp.model.pack_folder import (
    CONFIG_FILE,
    check_target,
    check_there,
    config_text,
    files_identity,
    replace_folder,
)
from offramp.model.pack_tensors import StoredParts
from offramp.model.safetensors import read_file

TENSOR_FILE = "router.safetensors"
WHAT = "the router pack"
SAMPLE = "sample"


def read_router(folder: str | Path) -> RouterPack:
    """The pack in a folder, copied into memory and checked against its own config.

    Raises ModelNotFoundError if there is none, CorruptModelError naming field or tensor and sizes for a damaged one.
    """
    folder = Path(folder)
    making = "; `offramp train router` makes one"
    check_there(folder, what="router pack", tensor_file=TENSOR_FILE, more=making)
    content = _content(folder / CONFIG_FILE)
    config = RouterConfig.read(content)
    parts = StoredParts(read_file(folder / TENSOR_FILE), str(folder / TENSOR_FILE))
    sample = bounded(parts.vector(SAMPLE, config.num_prompts))
    if (np.diff(sample) < 0).any():
        raise parts.error(f"tensor {SAMPLE!r} does not rise")
    router = ROUTERS[config.kind].read(parts, config.shape)
    parts.check_all_taken()
    _check_hash(content, map_file(folder / TENSOR_FILE).data, folder)
    return RouterPack(
        config=config,
        router=router,
        calibration=ThresholdCalibration(scores=sample, certified=config.certified),
        folder=folder,
        identity=files_identity(folder, (CONFIG_FILE, TENSOR_FILE)),
    )


def write_router(folder: Path, pack: RouterPack) -> RouterPack:
    """Write a pack whole or not at all, in the place of one that is there; the pack as it reads back.

    Raises InvalidRequestError if the folder holds anything but a pack, ResourceError if it can't be written.
    """
    from safetensors.numpy import save

    folder = folder.absolute()
    check_router_target(folder)
    tensors = {**pack.router.tensors(), SAMPLE: pack.calibration.scores.astype(np.float32)}
    stored = save({name: np.ascontiguousarray(values) for name, values in tensors.items()})
    fields: dict[str, object] = json.loads(config_text(pack.config.fields()))
    files = {CONFIG_FILE: config_text({**fields, SHA256: _hash(fields, stored)}), TENSOR_FILE: stored}
    replace_folder(folder, files, what=WHAT, check=read_router)
    return read_router(folder)


def check_router_target(folder: Path) -> None:
    """Raise InvalidRequestError if a pack can't take that place: long training should ask before it begins."""
    check_target(folder, {CONFIG_FILE, TENSOR_FILE}, what="a router pack", read_config=_read_config)


def _read_config(path: Path) -> RouterConfig:
    return RouterConfig.read(_content(path))


def _content(path: Path) -> Fields:
    return Fields(read_json(path).values, str(path))


def _hash(fields: Mapping[str, object], stored: bytes | memoryview) -> str:
    """Of the tensors' file, and of all fields but the hash itself, in any order."""
    others = {name: value for name, value in fields.items() if name != SHA256}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode())
    digest.update(stored)
    return digest.hexdigest()


def _check_hash(content: Fields, stored: memoryview, folder: Path) -> None:
    said, found = content.text(SHA256), _hash(content.values, stored)
    if said != found:
        raise CorruptModelError(
            f"the router pack {folder} was changed: its {SHA256} is {found}, {CONFIG_FILE} says {said}",
            hint="fetch or train it again: its thresholds promise nothing of other numbers",
        )
