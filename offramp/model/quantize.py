"""f32 values -> q8 and q4, and back: the reference of docs/arithmetic.md. Works in chunks of rows.

out = output features, in = input features, blocks = ceil(in / 32). A row's values depend on that row only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from offramp.errors import CorruptModelError
from offramp.model.tensors import BLOCK, F32Matrix, Matrix, Q4Matrix, Q8Matrix

Floats = NDArray[np.float32]

RowReader = Callable[[int, int], Floats]
"""Rows start..stop-1 of a matrix, f32 [rows, in]."""

CHUNK_VALUES = 1 << 18
"""Values handled at a time: 1 MiB of f32, so that the passes over a chunk stay in the cache."""


def quantize_q8(values: Floats, name: str = "weights") -> Q8Matrix:
    """Quantize [out, in]. NaN, infinity or a scale beyond f16 raise CorruptModelError with `name`."""
    return read_q8(lambda start, stop: values[start:stop], values.shape, name)


def quantize_q4(values: Floats, name: str = "weights") -> Q4Matrix:
    """Quantize [out, in]. NaN, infinity or a scale beyond f16 raise CorruptModelError with `name`."""
    return read_q4(lambda start, stop: values[start:stop], values.shape, name)


def read_f32(read: RowReader, shape: tuple[int, ...], name: str) -> F32Matrix:
    """All rows, checked to be finite."""
    result = np.empty(shape, np.float32)
    for start, stop in row_chunks(*shape):
        result[start:stop] = read(start, stop)
        if not np.isfinite(result[start:stop]).all():
            raise not_finite(name)
    return F32Matrix(result)


def read_q8(read: RowReader, shape: tuple[int, ...], name: str) -> Q8Matrix:
    """Quantize rows as they are read; only a chunk of f32 values exists at a time."""
    out_features, in_features = shape
    blocks = -(-in_features // BLOCK)
    quants = np.empty((out_features, blocks * BLOCK), np.int8)
    scales = np.empty((out_features, blocks), np.float16)
    for start, stop in row_chunks(out_features, in_features):
        rows = _blocked(read(start, stop), in_features)  # [rows, blocks, 32], padded with 0
        with np.errstate(invalid="ignore"):  # refused by _to_f16
            amax = np.maximum(rows.max(axis=2), -rows.min(axis=2))
            scales[start:stop] = _to_f16(amax / np.float32(127), amax, name)
        scale = scales[start:stop].astype(np.float32)[:, :, None]
        codes = _divide_rint(rows, scale)
        np.clip(codes, -127, 127, out=codes)
        quants[start:stop] = codes.reshape(stop - start, -1)
    return Q8Matrix(quants, scales, in_features)


def read_q4(read: RowReader, shape: tuple[int, ...], name: str) -> Q4Matrix:
    """Quantize rows as they are read. A last, partial block's range is that of its real values; padding gets code 0."""
    out_features, in_features = shape
    blocks = -(-in_features // BLOCK)
    codes = np.zeros((out_features, blocks * BLOCK), np.uint8)
    scales = np.empty((out_features, blocks), np.float16)
    minimums = np.empty((out_features, blocks), np.float16)
    for start, stop in row_chunks(out_features, in_features):
        rows = _blocked(read(start, stop), in_features, mode="edge")
        with np.errstate(over="ignore", invalid="ignore"):  # refused by _to_f16
            low, high = rows.min(axis=2), rows.max(axis=2)
            scales[start:stop] = _to_f16((high - low) / np.float32(15), np.maximum(high, -low), name)
        minimums[start:stop] = _to_f16(low, low, name)
        scale = scales[start:stop].astype(np.float32)[:, :, None]
        levels = _divide_rint(rows - minimums[start:stop].astype(np.float32)[:, :, None], scale)
        np.clip(levels, 0, 15, out=levels)
        codes[start:stop, :in_features] = levels.reshape(stop - start, -1)[:, :in_features]
    return Q4Matrix(codes, scales, minimums, in_features)


def dequantize(matrix: Matrix) -> Floats:
    """The values a matrix stands for, f32 [out, in]: multiply, then add."""
    if isinstance(matrix, F32Matrix):
        return matrix.values
    stored = matrix.quants if isinstance(matrix, Q8Matrix) else matrix.codes
    values = stored.reshape(*matrix.scales.shape, BLOCK).astype(np.float32)
    values *= matrix.scales.astype(np.float32)[:, :, None]
    if isinstance(matrix, Q4Matrix):
        values += matrix.minimums.astype(np.float32)[:, :, None]
    return np.ascontiguousarray(values.reshape(len(values), -1)[:, : matrix.in_features])


def row_chunks(num_rows: int, row_size: int) -> Iterator[tuple[int, int]]:
    """Half-open row ranges that hold about CHUNK_VALUES values each."""
    step = max(1, CHUNK_VALUES // row_size)
    for start in range(0, num_rows, step):
        yield start, min(start + step, num_rows)


def not_finite(name: str) -> CorruptModelError:
    """The error for NaN or infinity among the values of tensor `name`."""
    return CorruptModelError(
        f"tensor {name!r} holds NaN or infinite values", hint="the checkpoint is damaged; fetch it again"
    )


def _blocked(rows: Floats, in_features: int, mode: str = "constant") -> Floats:
    """[rows, in] -> [rows, blocks, 32]: the last block padded with 0, or with its last value under mode `edge`."""
    padding = -in_features % BLOCK
    if padding and mode == "edge":
        rows = np.pad(rows, ((0, 0), (0, padding)), mode="edge")
    elif padding:
        rows = np.pad(rows, ((0, 0), (0, padding)))
    return rows.reshape(len(rows), -1, BLOCK)


def _divide_rint(rows: Floats, scale: Floats) -> Floats:
    """rint(rows / scale), 0 where the scale is 0; [rows, blocks, 32] by [rows, blocks, 1]."""
    result = np.divide(rows, scale, out=np.zeros_like(rows), where=scale != 0)
    return np.rint(result, out=result)


def _to_f16(values: Floats, sources: Floats, name: str) -> NDArray[np.float16]:
    """Round to f16; refuse NaN and infinity, whether in `sources` or by overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        if not np.isfinite(sources).all():
            raise not_finite(name)
        raise CorruptModelError(
            f"tensor {name!r} holds values beyond the range of f16 scales", hint="load it with weights='f32'"
        )
    return halves
