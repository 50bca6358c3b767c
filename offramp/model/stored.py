"""Tensors as they lie in a checkpoint file, and their decoding to f32 or, without loss, to q8 and q4.

rows = product of all dimensions but the last, in = last dimension, blocks = in / 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.errors import UnsupportedModelError
from offramp.model.tensors import BLOCK, Q4Matrix, Q8Matrix

PLAIN = ("F32", "F16", "BF16")
"""Types without blocks."""

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file; `data` is a read-only view of the file's memory map, valid as long as it is referenced."""

    name: str
    dtype: str  # "F32", "BF16", "Q4_1", ...: the GGML type names, which safetensors shares for plain floats
    shape: tuple[int, ...]  # outermost dimension first
    data: Bytes  # [bytes]

    def __post_init__(self) -> None:
        assert self.data.ndim == 1
        assert self.data.size % max(1, self.num_rows) == 0

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])

    def row_bytes(self, start: int, stop: int) -> Bytes:
        """The raw bytes of rows start..stop-1, [rows, bytes a row]."""
        return self.data.reshape(self.num_rows, -1)[start:stop]

    def part(self, start: int, stop: int) -> StoredTensor:
        """Places start..stop-1 of the first dimension as a tensor of their own, under the same name.

        Raises UnsupportedModelError for a vector stored in blocks, which can't be cut.
        """
        size, rest = divmod(self.data.size, self.shape[0])
        if rest or (len(self.shape) == 1 and self.dtype not in PLAIN):
            raise UnsupportedModelError(
                f"tensor {self.name!r} of type {self.dtype} and shape {list(self.shape)} can't be cut into its parts",
                hint=f"vectors that hold several parts are of type {', '.join(PLAIN)}",
            )
        shape = (stop - start, *self.shape[1:])
        return StoredTensor(self.name, self.dtype, shape, self.data[start * size : stop * size])

    def same_values(self, other: StoredTensor) -> bool:
        """Whether both hold the same bytes; reads them unless they are one."""
        if self is other:
            return True
        alike = (self.dtype, self.shape) == (other.dtype, other.shape)
        return alike and np.array_equal(self.data, other.data)


def _f32(rows: Bytes) -> Floats:
    return _elements(rows, np.dtype("<f4")).astype(np.float32)


def _f16(rows: Bytes) -> Floats:
    return _elements(rows, np.dtype("<f2")).astype(np.float32)


def _bf16(rows: Bytes) -> Floats:
    return (_elements(rows, np.dtype("<u2")).astype(np.uint32) << 16).view(np.float32)


def _q8_0(rows: Bytes) -> Floats:
    scales, quants = _q8_parts(rows)
    return _scaled(quants, scales)


def _q4_0(rows: Bytes) -> Floats:
    scales, codes = _q4_0_parts(rows)
    return _scaled(codes.astype(np.int8) - np.int8(8), scales)


def _q4_1(rows: Bytes) -> Floats:
    scales, minimums, codes = _q4_1_parts(rows)
    values = _scaled(codes, scales).reshape(len(rows), -1, BLOCK)
    values += minimums.astype(np.float32)[:, :, None]
    return values.reshape(len(rows), -1)


_DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
}
"""Types decoded here: raw rows [rows, bytes] -> f32 [rows, in]."""


def decoded_here(dtype: str) -> bool:
    return dtype in _DECODERS


def check_decodable(tensor: StoredTensor) -> None:
    """Raise UnsupportedModelError, naming tensor and type, if `decode_rows` can't read it."""
    if tensor.dtype not in _DECODERS and not _package_decodes(tensor.dtype):
        raise UnsupportedModelError(
            f"tensor {tensor.name!r} has type {tensor.dtype}, which offramp can't read",
            hint=f"use {', '.join(_DECODERS)} or another quantization that the gguf package can dequantize",
        )


def decode_rows(tensor: StoredTensor, start: int, stop: int) -> Floats:
    """Rows start..stop-1 as new f32 values, [rows, in]. Any finite or non-finite value passes."""
    raw = tensor.row_bytes(start, stop)
    with np.errstate(invalid="ignore", over="ignore"):  # non-finite scales; the caller checks the values
        if tensor.dtype in _DECODERS:
            return _DECODERS[tensor.dtype](raw)
        return _decode_by_package(tensor.dtype, raw)


def q8_blocks(tensor: StoredTensor) -> Q8Matrix:
    """A Q8_0 tensor as q8, without loss."""
    assert tensor.dtype == "Q8_0"
    scales, quants = _q8_parts(tensor.row_bytes(0, tensor.num_rows))
    return Q8Matrix(np.ascontiguousarray(quants), np.ascontiguousarray(scales), tensor.shape[-1])


def q4_blocks(tensor: StoredTensor) -> Q4Matrix:
    """A Q4_1 or Q4_0 tensor as q4, without loss."""
    rows = tensor.row_bytes(0, tensor.num_rows)
    if tensor.dtype == "Q4_1":
        scales, minimums, codes = _q4_1_parts(rows)
        return Q4Matrix(codes, np.ascontiguousarray(scales), np.ascontiguousarray(minimums), tensor.shape[-1])
    assert tensor.dtype == "Q4_0"
    scales, codes = _q4_0_parts(rows)
    with np.errstate(over="ignore"):  # an overflow shows as an infinite minimum, which the caller refuses
        minimums = scales * np.float16(-8)
    return Q4Matrix(codes, np.ascontiguousarray(scales), minimums, tensor.shape[-1])


def _elements(rows: Bytes, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(rows).view(dtype)


def _blocks(rows: Bytes, size: int) -> Bytes:
    return rows.reshape(len(rows), -1, size)  # [rows, blocks, bytes a block]


def _halves(blocks: Bytes, at: int) -> NDArray[np.float16]:
    """The f16 at byte `at` of each block, [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0].astype(np.float16, copy=False)


def _nibbles(packed: Bytes) -> Bytes:
    """[rows, blocks, 16] bytes -> [rows, in] codes: low halves are a block's first 16 values, high halves the rest."""
    codes = np.empty((*packed.shape[:2], BLOCK), np.uint8)
    np.bitwise_and(packed, 15, out=codes[:, :, :16])
    np.right_shift(packed, 4, out=codes[:, :, 16:])
    return codes.reshape(len(packed), -1)


def _q8_parts(rows: Bytes) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    blocks = _blocks(rows, 2 + BLOCK)
    quants = np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8)
    return _halves(blocks, 0), quants.reshape(len(rows), -1)


def _q4_0_parts(rows: Bytes) -> tuple[NDArray[np.float16], Bytes]:
    blocks = _blocks(rows, 2 + BLOCK // 2)
    return _halves(blocks, 0), _nibbles(blocks[:, :, 2:])


def _q4_1_parts(rows: Bytes) -> tuple[NDArray[np.float16], NDArray[np.float16], Bytes]:
    blocks = _blocks(rows, 4 + BLOCK // 2)
    return _halves(blocks, 0), _halves(blocks, 2), _nibbles(blocks[:, :, 4:])


def _scaled(quants: NDArray[np.integer], scales: NDArray[np.float16]) -> Floats:
    blocks = quants.reshape(len(quants), -1, BLOCK).astype(np.float32)
    blocks *= scales.astype(np.float32)[:, :, None]
    return blocks.reshape(len(quants), -1)


def _package_decodes(dtype: str) -> bool:
    """Whether the gguf package dequantizes this type: tried on one block of zeros."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    kind = GGMLQuantizationType.__members__.get(dtype)
    if kind is None or kind not in GGML_QUANT_SIZES:
        return False
    try:
        _decode_by_package(dtype, np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8))
    except NotImplementedError:
        return False
    return True


def _decode_by_package(dtype: str, rows: Bytes) -> Floats:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return np.asarray(dequantize(np.ascontiguousarray(rows), GGMLQuantizationType[dtype]), dtype=np.float32)
