"""A drafter pack on disk: a folder with `config.json` and `drafter.safetensors`, written whole or not at all.

Tensors: `first`, `next` and the layer's matrices `q`, `k`, `v`, `o`, `gate`, `up`, `down` (floats, or q8 as `.quants`
and `.scales`); `first_norm`, `next_norm`, `attn_norm`, `mlp_norm`, `norm`; `vocab_ids`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from offramp.draft.pack import DrafterPack
from offramp.draft.pack_config import DrafterConfig
from offramp.draft.side import SideWeights
from offramp.model.config import PLAIN_FORM
from offramp.model.metadata import Fields, read_json
from offramp.model.pack_folder import (
    CONFIG_FILE,
    check_target,
    check_there,
    config_text,
    files_identity,
    replace_folder,
)
from offramp.model.pack_tensors import Arrays, StoredParts, stored_part
from offramp.model.safetensors import read_file
from offramp.model.shipped import pack_folder, shipped_folders, told_names
from offramp.model.tensors import LayerWeights, is_vector, layer_parts

TENSOR_FILE = "drafter.safetensors"
WHAT = "the drafter pack"


def read_drafter(place: str | Path) -> DrafterPack:
    """The pack in a folder, or shipped under a name, copied into memory and checked against its own config.

    Raises ModelNotFoundError if there is none, CorruptModelError naming field or tensor and sizes for a damaged one.
    """
    folder = pack_folder("drafters", place)
    making = "; `offramp train drafter` makes one"
    check_there(folder, what="drafter pack", tensor_file=TENSOR_FILE, more=making + told_names("drafters"))
    config = _read_config(folder / CONFIG_FILE)
    parts = StoredParts(read_file(folder / TENSOR_FILE), str(folder / TENSOR_FILE))
    weights = _weights(parts, config)
    parts.check_all_taken()
    identity = files_identity(folder, (CONFIG_FILE, TENSOR_FILE))
    return DrafterPack(config=config, weights=weights, folder=folder, identity=identity)


def shipped_drafter(fits: Callable[[DrafterConfig], bool]) -> DrafterPack | None:
    """The first shipped pack whose config fits; None where none does."""
    folders = (folder for folder in shipped_folders("drafters") if fits(_read_config(folder / CONFIG_FILE)))
    folder = next(folders, None)
    return None if folder is None else read_drafter(folder)


def write_drafter(folder: Path, pack: DrafterPack) -> DrafterPack:
    """Write a pack whole or not at all, in the place of one that is there; the pack as it reads back.

    f32 matrices become f16. Raises InvalidRequestError if the folder holds anything but a pack, ResourceError if it
    can't be written, CorruptModelError for what no one could read.
    """
    from safetensors.numpy import save

    folder = folder.absolute()
    check_drafter_target(folder)
    files = {CONFIG_FILE: config_text(pack.config.fields()), TENSOR_FILE: save(_stored(pack.weights))}
    replace_folder(folder, files, what=WHAT, check=read_drafter)
    return read_drafter(folder)


def check_drafter_target(folder: Path) -> None:
    """Raise InvalidRequestError if a pack can't take that place: long training should ask before it begins."""
    check_target(folder, {CONFIG_FILE, TENSOR_FILE}, what="a drafter pack", read_config=_read_config)


def _read_config(path: Path) -> DrafterConfig:
    return DrafterConfig.read(Fields(read_json(path).values, str(path)))


def _weights(parts: StoredParts, config: DrafterConfig) -> SideWeights:
    hidden, num_parts = config.hidden_size, 1 + len(config.taps)
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes = {
        "q": (heads, hidden),
        "k": (kv, hidden),
        "v": (kv, hidden),
        "o": (hidden, heads),
        "gate": (config.width, hidden),
        "up": (config.width, hidden),
        "down": (hidden, config.width),
    }
    layer: dict[str, Any] = {
        part: parts.vector(part, hidden) if is_vector(part) else parts.matrix(part, shapes[part])
        for part in layer_parts(PLAIN_FORM)
    }
    return SideWeights(
        first=parts.matrix("first", (hidden, num_parts * hidden)),
        first_norm=parts.vector("first_norm", num_parts * hidden),
        next=parts.matrix("next", (hidden, 2 * hidden)),
        next_norm=parts.vector("next_norm", 2 * hidden),
        layer=LayerWeights(**layer),
        norm=parts.vector("norm", hidden),
        vocab_ids=parts.vocab_ids("vocab_ids", config.vocabulary, config.vocab_size),
    )


def _stored(weights: SideWeights) -> Arrays:
    arrays: Arrays = {"vocab_ids": weights.vocab_ids}
    for name in ("first", "first_norm", "next", "next_norm", "norm"):
        arrays |= stored_part(name, getattr(weights, name))
    for part in layer_parts(PLAIN_FORM):
        arrays |= stored_part(part, getattr(weights.layer, part))
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}
