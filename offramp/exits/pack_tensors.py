"""The tensors of an exit pack: which there must be, from stored bytes to weights, and back.

Names, for each exit point l: `exits.{l}.norm` and `.input_norm` (vectors), `.down` and `.up` (floats, or q8 as
`.quants` and `.scales`), `exits.{l}.predictor.w1`, `.b1`, `.w2`, `.b2`; `vocab_ids` for all of them, or
`exits.{l}.vocab_ids`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.errors import CorruptModelError
from offramp.exits.pack import ExitHead
from offramp.exits.pack_config import PackConfig
from offramp.exits.predictors import LinearPredictor, MlpPredictor
from offramp.model.heads import HeadWeights, check_matrix, check_vocab_ids
from offramp.model.stored import StoredTensor, decode_rows
from offramp.model.tensors import BLOCK, F32Matrix, Matrix, Q8Matrix, Vector

FLOATS = ("F16", "F32", "BF16")
HINT = "the pack is damaged or incomplete; fetch or train it again"

Arrays = dict[str, NDArray[Any]]
"""Tensors by name, as they are stored."""


class PackTensors:
    """Takes the tensors of one file by name, each once; every error names file, tensor and sizes."""

    def __init__(self, tensors: Mapping[str, StoredTensor], where: str) -> None:
        self._left = dict(tensors)
        self._where = where

    def check_all_taken(self) -> None:
        if self._left:
            raise self._error(f"tensor {min(self._left)!r} is not called for by config.json")

    def vocabularies(self, config: PackConfig) -> dict[int, Ids | None]:
        """What each head knows, by exit point; equal ones are one object."""
        if not isinstance(config.vocabulary, tuple):
            ids = None if config.vocabulary is None else self._vocab_ids("vocab_ids", config.vocabulary, config)
            return dict.fromkeys(config.layers, ids)
        sizes = zip(config.layers, config.vocabulary, strict=True)
        read = {layer: self._vocab_ids(f"exits.{layer}.vocab_ids", size, config) for layer, size in sizes}
        known: dict[bytes, Ids] = {}
        return {layer: known.setdefault(ids.tobytes(), ids) for layer, ids in read.items()}

    def _vocab_ids(self, name: str, size: int, config: PackConfig) -> Ids:
        tensor = self._take(name, (size,), ("I32",))
        ids: Ids = np.frombuffer(tensor.data.tobytes(), dtype="<i4").astype(np.int32)
        check_vocab_ids(ids, config.vocab_size, self._where)
        return ids

    def head(self, layer: int, config: PackConfig, vocab_ids: Ids | None) -> HeadWeights:
        """The head of an exit point with weights of its own."""
        assert config.rank is not None
        name, hidden = f"exits.{layer}", config.hidden_size
        return HeadWeights(
            norm=self._vector(f"{name}.norm", hidden),
            input_norm=self._vector(f"{name}.input_norm", hidden),
            down=self._matrix(f"{name}.down", (config.rank, hidden)),
            up=self._matrix(f"{name}.up", (hidden, config.rank)),
            vocab_ids=vocab_ids,
        )

    def predictor(self, layer: int, config: PackConfig) -> LinearPredictor | MlpPredictor | None:
        name, hidden = f"exits.{layer}.predictor", config.hidden_size
        if config.predictors is None:
            return None
        if config.predictors == "linear":
            return LinearPredictor(self._values(f"{name}.w1", (1, hidden)), self._vector(f"{name}.b1", 1))
        width = self._width(f"{name}.b1")
        return MlpPredictor(
            self._values(f"{name}.w1", (width, hidden)),
            self._vector(f"{name}.b1", width),
            self._values(f"{name}.w2", (1, width)),
            self._vector(f"{name}.b2", 1),
        )

    def _width(self, name: str) -> int:
        """How wide a perceptron's inner layer is, by its biases."""
        tensor = self._left.get(name)
        if tensor is None:
            raise self._error(f"tensor {name!r} is missing")
        if len(tensor.shape) != 1 or tensor.shape[0] == 0:
            raise self._error(f"tensor {name!r} has shape {list(tensor.shape)}, a list of biases is called for")
        return tensor.shape[0]

    def _matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        if f"{name}.quants" not in self._left:
            return F32Matrix(self._values(name, shape))
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

    def _vector(self, name: str, size: int) -> Vector:
        return self._values(name, (size,)).reshape(-1)

    def _values(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        tensor = self._take(name, shape, FLOATS)
        values: NDArray[np.float32] = decode_rows(tensor, 0, tensor.num_rows)
        if not np.isfinite(values).all():
            raise self._error(f"tensor {name!r} holds NaN or infinite values")
        return values

    def _take(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> StoredTensor:
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise self._error(f"tensor {name!r} of shape {list(shape)} is missing")
        if tensor.shape != shape:
            raise self._error(f"tensor {name!r} has shape {list(tensor.shape)}, config.json calls for {list(shape)}")
        if tensor.dtype not in dtypes:
            raise self._error(f"tensor {name!r} has type {tensor.dtype}, not {' or '.join(dtypes)}")
        return tensor

    def _error(self, problem: str) -> CorruptModelError:
        return CorruptModelError(f"{self._where}: {problem}", hint=HINT)


def stored(config: PackConfig, exits: Mapping[int, ExitHead]) -> Arrays:
    """The tensors of a pack: matrices as f16 unless they are q8, vectors as f32. Raises CorruptModelError for NaN."""
    arrays = _vocabularies(config, exits)
    for layer, each in exits.items():
        head = each.head
        assert head.matrix is None, "a pack holds no output matrices"
        parts = {"norm": head.norm, "input_norm": head.input_norm, "down": head.down, "up": head.up}
        assert {part is None for part in parts.values()} == {config.kind == "shared"}, "all parts, or none"
        for part, value in parts.items():
            arrays.update(_stored(f"exits.{layer}.{part}", value))
        for part in ("w1", "b1", "w2", "b2"):
            values = getattr(each.predictor, part, None)
            matrix = F32Matrix(values) if values is not None and values.ndim == 2 else values
            arrays.update(_stored(f"exits.{layer}.predictor.{part}", matrix))
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _vocabularies(config: PackConfig, exits: Mapping[int, ExitHead]) -> Arrays:
    known = {layer: each.head.vocab_ids for layer, each in exits.items()}
    if isinstance(config.vocabulary, tuple):
        return {f"exits.{layer}.vocab_ids": ids for layer, ids in known.items() if ids is not None}
    first, *rest = known.values()
    if first is None:
        assert all(ids is None for ids in rest), "all heads of a pack know all tokens, or none does"
        return {}
    assert all(ids is not None and np.array_equal(ids, first) for ids in rest), "the config says: the same tokens"
    return {"vocab_ids": first}


def _stored(name: str, value: Vector | Matrix | None) -> Arrays:
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
