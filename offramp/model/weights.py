"""Stored tensors -> canonical weights: format conversion, GGUF's rope row order undone, NaN refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import ModelConfig
from offramp.model.quantize import RowReader, not_finite, read_f32, read_q4, read_q8
from offramp.model.stored import StoredTensor, decode_rows, decoded_here, q4_blocks, q8_blocks
from offramp.model.tensors import (
    F32Matrix,
    Matrix,
    Q4Matrix,
    Q8Matrix,
    Vector,
    WeightFormat,
    all_roles,
    is_norm,
    is_vector,
)

log = logging.getLogger("offramp")

HeldFormat = Literal["f32", "q8", "q4"]

READERS: dict[str, Callable[[RowReader, tuple[int, ...], str], Matrix]] = {
    "f32": read_f32,
    "q8": read_q8,
    "q4": read_q4,
}

TOKEN_MATRICES = ("embedding", "lm_head")
"""Kept in q8 when everything else becomes q4, as common 4-bit files do."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A `WeightSource` over a checkpoint's tensors; each call reads and converts anew and keeps nothing."""

    config: ModelConfig
    tensors: Mapping[str, StoredTensor]  # by role; shapes already checked
    fmt: WeightFormat
    interleaved: tuple[str, ...] = ()  # parts whose rows pair neighbours for rope
    norm_offset: float = 0.0  # what norm weights are stored without

    def roles(self) -> Sequence[str]:
        return all_roles(self.config)

    def vector(self, role: str) -> Vector:
        assert is_vector(role), f"{role!r} is a matrix"
        tensor = self.tensors[role]
        values: Vector = decode_rows(tensor, 0, 1)[0]
        if not np.isfinite(values).all():
            raise not_finite(tensor.name)
        return values + np.float32(self.norm_offset) if is_norm(role) and self.norm_offset else values

    def matrix(self, role: str) -> Matrix:
        assert not is_vector(role), f"{role!r} is a vector"
        matrix = convert(self.tensors[role], self.format_of(role))
        part = role.rpartition(".")[2]
        if part not in self.interleaved:
            return matrix
        num_heads = matrix.shape[0] // self.config.head_dim
        return take_rows(matrix, half_split_order(num_heads, self.config.head_dim, self.config.rope.rotary_dim))

    def format_of(self, role: str) -> HeldFormat:
        """The format that a matrix gets."""
        if self.fmt == "auto":
            return "q4" if self.tensors[role].dtype in ("Q4_0", "Q4_1") else "q8"
        return held_format(self.fmt, role)


def held_format(asked: HeldFormat, role: str) -> HeldFormat:
    """The format of one matrix where `asked` is that of the model."""
    return "q8" if asked == "q4" and role in TOKEN_MATRICES else asked


def log_foreign_types(tensors: Mapping[str, StoredTensor], where: str) -> None:
    """One line for each stored type that has no canonical twin and is dequantized by the gguf package."""
    for dtype, count in Counter(t.dtype for t in tensors.values() if not decoded_here(t.dtype)).items():
        log.warning("%s: %d tensors of type %s are dequantized and stored in another format", where, count, dtype)


def convert(tensor: StoredTensor, target: HeldFormat) -> Matrix:
    """The tensor in the target format: without loss where the stored blocks fit, else through f32."""
    if target == "q4" and tensor.dtype in ("Q4_0", "Q4_1"):
        q4 = q4_blocks(tensor)
        _check_scales(tensor, q4.scales, q4.minimums)
        return q4
    if target == "q8" and tensor.dtype == "Q8_0":
        q8 = q8_blocks(tensor)
        _check_scales(tensor, q8.scales)
        if q8.quants.min() > -128:
            return q8
        log.warning("tensor %r uses code -128, outside q8, and is quantized again", tensor.name)
    return READERS[target](partial(decode_rows, tensor), tensor.shape, tensor.name)


def _check_scales(tensor: StoredTensor, *scales: NDArray[np.float16]) -> None:
    """The codes are finite by nature, so finite scales make finite weights."""
    if not all(np.isfinite(s).all() for s in scales):
        raise not_finite(tensor.name)


def half_split_order(num_heads: int, head_dim: int, rotary_dim: int) -> NDArray[np.intp]:
    """For each row in half-split order, its row in a file that pairs neighbours (2j, 2j + 1), [heads * head_dim]."""
    pairs = np.arange(rotary_dim).reshape(-1, 2).T.reshape(-1)  # 0, 2, 4, ..., 1, 3, 5, ...
    head = np.concatenate([pairs, np.arange(rotary_dim, head_dim)])
    order: NDArray[np.intp] = (np.arange(num_heads)[:, None] * head_dim + head).reshape(-1)
    return order


def take_rows(matrix: Matrix, order: NDArray[np.intp]) -> Matrix:
    """The matrix's rows in the given order (a copy)."""
    match matrix:
        case F32Matrix():
            return F32Matrix(matrix.values[order])
        case Q8Matrix():
            return Q8Matrix(matrix.quants[order], matrix.scales[order], matrix.in_features)
        case Q4Matrix():
            codes, scales, minimums = matrix.codes[order], matrix.scales[order], matrix.minimums[order]
            return Q4Matrix(codes, scales, minimums, matrix.in_features)
