"""Safetensors checkpoints: one file or several with an index, checked strictly, read over memory maps. No pickle, ever.

A header is refused unless its tensors tile the data section exactly: no gap, no overlap, no byte missing or left over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import CorruptModelError, ModelNotFoundError, UnsupportedModelError
from offramp.model.mapping import TRUNCATED_HINT, map_file
from offramp.model.metadata import Fields, parse_json_object, read_json
from offramp.model.stored import StoredTensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # bytes, the limit of the format

_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
"""Element types whose size is known; only F32, F16 and BF16 can hold weights."""

PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def read_safetensors(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a checkpoint directory by name. Raises a ModelError that names file and tensor."""
    if (directory / SINGLE_FILE).exists():
        return read_file(directory / SINGLE_FILE)
    if (directory / INDEX_FILE).exists():
        return _read_shards(directory, read_json(directory / INDEX_FILE))
    files = sorted(directory.glob("*.safetensors"))
    if len(files) == 1:
        return read_file(files[0])
    if files:
        raise CorruptModelError(
            f"{directory} holds {len(files)} safetensors files but no {INDEX_FILE}", hint="fetch the index file too"
        )
    pickles = sorted(path.name for path in directory.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise pickle_refused(f"{directory} holds weights as pickle only ({pickles[0]})")
    raise ModelNotFoundError(f"{directory} holds no weights", hint=f"expected {SINGLE_FILE} or {INDEX_FILE}")


def has_safetensors(directory: Path) -> bool:
    return (directory / INDEX_FILE).exists() or any(directory.glob("*.safetensors"))


def pickle_refused(message: str) -> UnsupportedModelError:
    """Loading a pickle runs what is written in it."""
    return UnsupportedModelError(message, hint="offramp never opens pickles: convert the checkpoint to safetensors")


def _read_shards(directory: Path, index: Fields) -> dict[str, StoredTensor]:
    places = index.group("weight_map")
    if places is None:
        raise index.error("weight_map", "the file name of each tensor")
    shards: dict[str, dict[str, StoredTensor]] = {}
    tensors: dict[str, StoredTensor] = {}
    for name, file in places.values.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            raise CorruptModelError(
                f"{INDEX_FILE}: tensor {name!r} points to {file!r}",
                hint="a shard is a .safetensors file beside its index",
            )
        if file not in shards:
            shards[file] = _read_shard(directory / file, name)
        if name not in shards[file]:
            raise CorruptModelError(
                f"{INDEX_FILE}: tensor {name!r} is missing from {file}", hint="fetch the model's files again"
            )
        tensors[name] = shards[file][name]
    for file, held in shards.items():
        for name, tensor in held.items():
            if not tensors.setdefault(name, tensor).same_values(tensor):
                raise CorruptModelError(
                    f"tensor {name!r} is in {file} and in another shard, with other values",
                    hint="files of two models are mixed; fetch the model's files again",
                )
    return tensors


def _read_shard(path: Path, tensor: str) -> dict[str, StoredTensor]:
    if not path.exists():
        raise CorruptModelError(
            f"shard {path.name} of {path.parent} is missing; tensor {tensor!r} lives in it",
            hint="fetch the missing file",
        )
    return read_file(path)


def _is_plain_name(file: str) -> bool:
    """Whether an index entry names a file of its own directory: nothing that could lead out of it."""
    return file.endswith(".safetensors") and not any(mark in file for mark in ("/", "\\", ":", "\0"))


def read_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, in the order of their data."""
    data = map_file(path)
    if len(data) < 8:
        raise CorruptModelError(f"{path.name} holds {len(data)} bytes, not even a header", hint=TRUNCATED_HINT)
    header_size = int.from_bytes(bytes(data[:8]), "little")
    present = len(data) - 8
    if header_size > min(MAX_HEADER, present):
        raise CorruptModelError(
            f"{path.name}: a header of {header_size} bytes announced, {present} present",
            hint=f"{TRUNCATED_HINT}; or it is not a safetensors file",
        )
    start = 8 + header_size
    entries = _parse_header(bytes(data[8:start]), path.name)
    _check_tiling(entries, len(data) - start, path.name)
    return {e.name: StoredTensor(e.name, e.dtype, e.shape, data[start + e.begin : start + e.end]) for e in entries}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int  # bytes from the start of the data section
    end: int


def _parse_header(raw: bytes, where: str) -> list[_Entry]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptModelError(f"{where}: the header is not UTF-8 text", hint=TRUNCATED_HINT) from error
    header = parse_json_object(text, f"{where}: the header")
    entries = [_parse_entry(name, value, where) for name, value in header.items() if name != "__metadata__"]
    return sorted(entries, key=lambda e: (e.begin, e.end))


def _parse_entry(name: str, value: object, where: str) -> _Entry:
    what = f"{where}: tensor {name!r}"
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        raise CorruptModelError(f"{what} lacks dtype, shape or data_offsets", hint=TRUNCATED_HINT)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise UnsupportedModelError(f"{what} has unknown type {dtype!r}", hint="use an f32, f16 or bf16 checkpoint")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CorruptModelError(
            f"{what} has impossible shape {shape!r} or data_offsets {offsets!r}", hint=TRUNCATED_HINT
        )
    needed, given = math.prod(shape) * _ITEM_BYTES[dtype], offsets[1] - offsets[0]
    if needed != given:
        raise CorruptModelError(
            f"{what} of type {dtype} and shape {shape} needs {needed} bytes, its data_offsets span {given}",
            hint=TRUNCATED_HINT,
        )
    return _Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value)


def _check_tiling(entries: list[_Entry], present: int, where: str) -> None:
    """Refuse data that is not covered by the tensors exactly once. `entries` come in the order of their data."""
    at = 0
    for entry in entries:
        if entry.begin != at:
            problem = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            raise CorruptModelError(
                f"{where}: tensor {entry.name!r} at data offset {entry.begin} {problem}, which ends at {at}",
                hint=TRUNCATED_HINT,
            )
        if entry.end > present:
            raise CorruptModelError(
                f"{where}: tensor {entry.name!r} needs {entry.end - entry.begin} bytes at data offset {entry.begin}, "
                f"but {max(0, present - entry.begin)} of them are present",
                hint=TRUNCATED_HINT,
            )
        at = entry.end
    if at != present:
        raise CorruptModelError(f"{where}: {present - at} bytes follow the last tensor", hint=TRUNCATED_HINT)
