"""Converting a checkpoint to a folder that runs without it (converted.py)."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from offramp.errors import InvalidRequestError, ResourceError
from offramp.model.checkpoint import Checkpoint
from offramp.model.directory import copy_texts, text_files
from offramp.model.plain import to_plain
from offramp.model.tensors import WeightFormat, is_vector
from offramp.model.weights import StoredWeights
from offramp.native.converted import (
    DESCRIPTION,
    FORM_VERSION,
    GGUF_TOKENIZER,
    TOKENIZER,
    WEIGHTS,
    tensor_places,
)
from offramp.native.prepared_file import (
    ALIGNMENT,
    LAYOUT_VERSION,
    PreparedWeights,
    Progress,
    tensor_bytes,
    write_prepared,
)
from offramp.whole_file import whole_folder

SLACK = 1 << 20  # bytes for what is not counted


def convert(checkpoint: Checkpoint, weights: StoredWeights, target: Path, *, source: str, tell: Progress) -> None:
    """Convert into the new folder `target`; `weights` are the checkpoint's, `source` names the model for people.

    Raises InvalidRequestError for a target that is taken, ResourceError where there is no room, and what the source's
    tensors may raise. The target is there whole or not at all.
    """
    check_target(target)
    target = target.absolute()
    _check_room(target.parent, checkpoint, weights)
    made_from = {"source_hash": checkpoint.source_hash(), "format": weights.fmt}
    with _writing(target), whole_folder(target) as folder:
        with (folder / WEIGHTS).open("wb") as file:
            write_prepared(weights, made_from, file, tell)
        made = PreparedWeights(checkpoint.config, folder / WEIGHTS)
        _write_json(folder / DESCRIPTION, _description(checkpoint, made, weights.fmt, source))
        if isinstance(checkpoint.tokenizer_source, Path):
            copy_texts(checkpoint.tokenizer_source, folder)
        else:
            _write_json(folder / GGUF_TOKENIZER, checkpoint.tokenizer_source)


def _description(checkpoint: Checkpoint, made: PreparedWeights, fmt: WeightFormat, source: str) -> dict[str, object]:
    return {
        "form": FORM_VERSION,
        "layout": LAYOUT_VERSION,
        "offramp": version("offramp"),
        "source": source,
        "source_hash": made.source_hash,
        "weights": fmt,
        "config": to_plain(checkpoint.config),
        "generation": to_plain(checkpoint.generation),
        "tokenizer": TOKENIZER if isinstance(checkpoint.tokenizer_source, Path) else GGUF_TOKENIZER,
        "num_bytes": made.path.stat().st_size,
        "tensors": tensor_places(made),
    }


def _write_json(path: Path, fields: Mapping[str, object]) -> None:
    """A line for each field."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def check_target(target: Path) -> None:
    """Refuse (InvalidRequestError) what is there and is no empty folder, and what lies in no folder."""
    hint = "name a folder that is not there yet"
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InvalidRequestError(f"{target} is there already", hint=hint)
    if target.is_dir() and any(target.iterdir()):
        raise InvalidRequestError(f"{target} is not empty", hint=hint)
    if not target.absolute().parent.is_dir():
        raise InvalidRequestError(f"{target.absolute().parent} is no folder", hint="make it first")


def converted_bytes(weights: StoredWeights) -> int:
    """Bytes of the packed weights, without what aligns them."""
    return sum(
        tensor_bytes(weights.config, role, "f32" if is_vector(role) else weights.format_of(role))
        for role in weights.roles()
    )


def _check_room(folder: Path, checkpoint: Checkpoint, weights: StoredWeights) -> None:
    source = checkpoint.tokenizer_source
    texts = sum(file.stat().st_size for file in text_files(source)) if isinstance(source, Path) else 0
    needed = converted_bytes(weights) + ALIGNMENT * len(weights.roles()) + texts + SLACK
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"the converted model takes {needed / 2**20:.0f} MiB, and {folder} has {free / 2**20:.0f} MiB left",
            hint="free some space, name a folder on another disk, or convert to a smaller format",
        )


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn a full disk or a folder that can't be written into a ResourceError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise InvalidRequestError(
                f"{target} was filled meanwhile", hint="name a folder that is not there yet"
            ) from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ResourceError(
            f"can't write {target}: {'the disk is full' if full else error.strerror or error}",
            hint="free some space, or name a folder elsewhere",
        ) from error
