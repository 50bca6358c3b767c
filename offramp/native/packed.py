"""Weights in the layout that the C++ kernels read: interleaved by 16 outputs (csrc/kernels/kernels.h).

out = output features, in = input features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.model.config import LayerForm, ModelConfig
from offramp.model.tensors import (
    F32Matrix,
    LayerWeights,
    Matrix,
    Q8Matrix,
    Vector,
    WeightSource,
    is_vector,
    layer_parts,
)
from offramp.native import _native

FORMAT_NAMES = {_native.F32: "f32", _native.Q8: "q8", _native.Q4: "q4"}


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """One matrix as tiles of 16 outputs; `format` is a constant of the extension (`FORMAT_NAMES`)."""

    tiles: NDArray[np.uint8]  # flat
    format: int
    out_features: int
    in_features: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayer:
    """One layer as the extension takes it."""

    attn_norm: Vector
    q: PackedMatrix
    k: PackedMatrix
    v: PackedMatrix
    o: PackedMatrix
    mlp_norm: Vector
    gate: PackedMatrix
    up: PackedMatrix
    down: PackedMatrix
    q_bias: Vector | None = None
    k_bias: Vector | None = None
    v_bias: Vector | None = None
    q_norm: Vector | None = None
    k_norm: Vector | None = None
    post_attn_norm: Vector | None = None
    post_mlp_norm: Vector | None = None


class PackedWeights(Protocol):
    """Packed weights by role (the roles of `WeightSource`), in memory or mapped from a prepared file."""

    @property
    def config(self) -> ModelConfig: ...

    def matrix(self, role: str) -> PackedMatrix: ...

    def vector(self, role: str) -> Vector: ...


def pack(matrix: Matrix) -> PackedMatrix:
    """Interleave one matrix; the result holds a copy."""
    rows, columns = matrix.shape
    if isinstance(matrix, F32Matrix):
        tiles = _target(_native.F32, rows, columns)
        _native.pack_f32(np.ascontiguousarray(matrix.values, dtype=np.float32), tiles)
        return PackedMatrix(tiles, _native.F32, rows, columns)
    scales = _bits(matrix.scales)
    if isinstance(matrix, Q8Matrix):
        tiles = _target(_native.Q8, rows, columns)
        _native.pack_q8(np.ascontiguousarray(matrix.quants), scales, tiles)
        return PackedMatrix(tiles, _native.Q8, rows, columns)
    tiles = _target(_native.Q4, rows, columns)
    _native.pack_q4(np.ascontiguousarray(matrix.codes), scales, _bits(matrix.minimums), tiles)
    return PackedMatrix(tiles, _native.Q4, rows, columns)


def gather(matrix: PackedMatrix, outputs: Ids) -> PackedMatrix:
    """The chosen outputs, in that order, as a matrix of their own (a copy): the same products for fewer bytes."""
    tiles = _target(matrix.format, len(outputs), matrix.in_features)
    _native.gather_outputs(matrix, np.ascontiguousarray(outputs, dtype=np.int32), tiles)
    return PackedMatrix(tiles, matrix.format, len(outputs), matrix.in_features)


def pack_layer(weights: LayerWeights, form: LayerForm) -> PackedLayer:
    """Interleave a layer that did not come from a source by role (a side layer)."""
    parts: dict[str, Any] = {}
    for part in layer_parts(form):
        value = getattr(weights, part)
        assert value is not None, f"the layer lacks {part}"
        parts[part] = np.ascontiguousarray(value, dtype=np.float32) if is_vector(part) else pack(value)
    return PackedLayer(**parts)


def packed_layer(weights: PackedWeights, index: int) -> PackedLayer:
    """Layer `index` of packed weights."""
    parts: dict[str, Any] = {}
    for part in layer_parts(weights.config.form):
        role = f"layers.{index}.{part}"
        parts[part] = weights.vector(role) if is_vector(role) else weights.matrix(role)
    return PackedLayer(**parts)


class PackedInMemory:
    """Packs a source role by role as it is asked for; nothing is cached here, the executor keeps what it takes."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source

    @property
    def config(self) -> ModelConfig:
        return self._source.config

    def matrix(self, role: str) -> PackedMatrix:
        return pack(self._source.matrix(role))

    def vector(self, role: str) -> Vector:
        return np.ascontiguousarray(self._source.vector(role), dtype=np.float32)


def _target(fmt: int, rows: int, columns: int) -> NDArray[np.uint8]:
    return np.empty(_native.packed_bytes(fmt, rows, columns), dtype=np.uint8)


def _bits(halves: NDArray[np.float16]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(halves, dtype=np.float16).view(np.uint16)
