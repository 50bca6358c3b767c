"""The tensors of a pack, from stored bytes to weights and back: floats, or q8 as `NAME.quants` and `NAME.scales`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.errors import CorruptModelError
from offramp.model.heads import check_matrix, check_vocab_ids
from offramp.model.stored import StoredTensor, decode_rows
from offramp.model.tensors import BLOCK, F32Matrix, Matrix, Q8Matrix, Vector

FLOATS = ("F16", "F32", "BF16")
HINT = "the pack is damaged or incomplete; fetch or train it again"

Arrays = dict[str, NDArray[Any]]
"""Tensors by name, as they are stored."""


class StoredParts:
    """Takes the tensors of one file by name, each once; every error names file, tensor and sizes."""

    def __init__(self, tensors: Mapping[str, StoredTensor], where: str) -> None:
        self._left = dict(tensors)
        self._where = where

    def check_all_taken(self) -> None:
        if self._left:
            raise self.error(f"tensor {min(self._left)!r} is not called for by config.json")

    def vocab_ids(self, name: str, size: int, vocab_size: int) -> Ids:
        """A rising list of tokens."""
        tensor = self._take(name, (size,), ("I32",))
        ids: Ids = np.frombuffer(tensor.data.tobytes(), dtype="<i4").astype(np.int32)
        check_vocab_ids(ids, vocab_size, self._where)
        return ids

    def length(self, name: str) -> int:
        """How many values a vector has."""
        tensor = self._left.get(name)
        if tensor is None:
            raise self.error(f"tensor {name!r} is missing")
        if len(tensor.shape) != 1 or tensor.shape[0] == 0:
            raise self.error(f"tensor {name!r} has shape {list(tensor.shape)}, a list of numbers is called for")
        return tensor.shape[0]

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        """A matrix, in q8 where it is stored so."""
        if f"{name}.quants" not in self._left:
            return F32Matrix(self.values(name, shape))
        rows, blocks = shape[0], -(-shape[1] // BLOCK)
        quants = self._take(f"{name}.quants", (rows, blocks * BLOCK), ("I8",)).data.tobytes()
        scales = self._take(f"{name}.scales", (rows, blocks), ("F16",)).data.tobytes()
        matrix = Q8Matrix(
            np.frombuffer(quants, dtype=np.int8).reshape(rows, -1),
            np.frombuffer(scales, dtype="<f2").astype(np.float16).reshape(rows, -1),
            shape[1],
        )
        check_matrix(f"tensor {name!r}", matrix, shape, self._where)
        return matrix

    def vector(self, name: str, size: int) -> Vector:
        """A list of numbers."""
        return self.values(name, (size,)).reshape(-1)

    def values(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Finite numbers of any float type."""
        tensor = self._take(name, shape, FLOATS)
        values: NDArray[np.float32] = decode_rows(tensor, 0, tensor.num_rows)
        if not np.isfinite(values).all():
            raise self.error(f"tensor {name!r} holds NaN or infinite values")
        return values

    def error(self, problem: str) -> CorruptModelError:
        """The error for a damaged file."""
        return CorruptModelError(f"{self._where}: {problem}", hint=HINT)

    def _take(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> StoredTensor:
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise self.error(f"tensor {name!r} of shape {list(shape)} is missing")
        if tensor.shape != shape:
            raise self.error(f"tensor {name!r} has shape {list(tensor.shape)}, config.json calls for {list(shape)}")
        if tensor.dtype not in dtypes:
            raise self.error(f"tensor {name!r} has type {tensor.dtype}, not {' or '.join(dtypes)}")
        return tensor


def stored_part(name: str, value: Vector | Matrix | None) -> Arrays:
    """A part as it is kept: matrices as f16 unless they are q8, vectors as f32. Raises CorruptModelError for NaN."""
    match value:
        case None:
            return {}
        case F32Matrix():
            return {name: _halves(name, value.values)}
        case Q8Matrix():
            return {f"{name}.quants": value.quants, f"{name}.scales": value.scales}
        case np.ndarray():
            return {name: value.astype(np.float32)}
        case _:
            raise AssertionError(f"{name}: a pack holds f16 and q8 only")


def _halves(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise CorruptModelError(
            f"tensor {name!r} holds NaN, infinity or values beyond the range of f16",
            hint="training has diverged: lower the learning rate",
        )
    return halves
