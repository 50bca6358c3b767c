"""A router pack on disk: a folder with `config.json` and `router.safetensors`, written whole or not at all.

Tensors: those of its kind, and `sample`, the scores of the calibration's prompts, rising.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.pack import RouterPack
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.threshold import ThresholdCalibration, bounded
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
    config = _read_config(folder / CONFIG_FILE)
    parts = StoredParts(read_file(folder / TENSOR_FILE), str(folder / TENSOR_FILE))
    sample = bounded(parts.vector(SAMPLE, config.num_prompts))
    if (np.diff(sample) < 0).any():
        raise parts.error(f"tensor {SAMPLE!r} does not rise")
    router = ROUTERS[config.kind].read(parts, config.shape)
    parts.check_all_taken()
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
    files = {CONFIG_FILE: config_text(pack.config.fields()), TENSOR_FILE: stored}
    replace_folder(folder, files, what=WHAT, check=read_router)
    return read_router(folder)


def check_router_target(folder: Path) -> None:
    """Raise InvalidRequestError if a pack can't take that place: long training should ask before it begins."""
    check_target(folder, {CONFIG_FILE, TENSOR_FILE}, what="a router pack", read_config=_read_config)


def _read_config(path: Path) -> RouterConfig:
    return RouterConfig.read(Fields(read_json(path).values, str(path)))
