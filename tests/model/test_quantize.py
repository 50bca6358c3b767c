"""Quantization rules of docs/arithmetic.md, against a version written value by value."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.errors import CorruptModelError
from offramp.model import quantize
from offramp.model.quantize import dequantize, quantize_q4, quantize_q8
from offramp.model.tensors import F32Matrix

Floats = NDArray[np.float32]
f32 = np.float32


def q8_block(block: Floats) -> tuple[np.float16, list[int]]:
    scale = np.float16(np.abs(block).max() / f32(127))
    if scale == 0:
        return scale, [0] * len(block)
    return scale, [int(min(127, max(-127, np.rint(w / f32(scale))))) for w in block]


def q4_block(block: Floats) -> tuple[np.float16, np.float16, list[int]]:
    scale, minimum = np.float16((block.max() - block.min()) / f32(15)), np.float16(block.min())
    if scale == 0:
        return scale, minimum, [0] * len(block)
    return scale, minimum, [int(min(15, max(0, np.rint((w - f32(minimum)) / f32(scale))))) for w in block]


def sample(in_features: int, seed: int = 3) -> Floats:
    """Rows of very different sizes, with a row of zeros, a constant row and one too small for an f16 scale."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((9, in_features), dtype=np.float32) * (10.0 ** np.arange(-5, 4))[:, None].astype(f32)
    values[1], values[2], values[3] = 0, 0.3, values[3] * f32(1e-9)
    return values


@pytest.mark.parametrize("in_features", [32, 96, 40, 1, 33])
def test_q8_follows_the_rules(in_features: int) -> None:
    values = sample(in_features)
    matrix = quantize_q8(values)
    assert matrix.shape == values.shape
    for r, row in enumerate(values):
        for b in range(-(-in_features // 32)):
            scale, codes = q8_block(row[32 * b : 32 * b + 32])
            stored = matrix.quants[r, 32 * b : 32 * b + 32].tolist()
            assert matrix.scales[r, b] == scale
            assert stored == codes + [0] * (32 - len(codes))


@pytest.mark.parametrize("in_features", [32, 96, 40, 1, 33])
def test_q4_follows_the_rules(in_features: int) -> None:
    values = sample(in_features)
    matrix = quantize_q4(values)
    assert matrix.shape == values.shape
    for r, row in enumerate(values):
        for b in range(-(-in_features // 32)):
            scale, minimum, codes = q4_block(row[32 * b : 32 * b + 32])
            stored = matrix.codes[r, 32 * b : 32 * b + 32].tolist()
            assert (matrix.scales[r, b], matrix.minimums[r, b]) == (scale, minimum)
            assert stored == codes + [0] * (32 - len(codes))


def test_dequantize_multiplies_then_adds() -> None:
    values = sample(40)
    q8, q4 = quantize_q8(values), quantize_q4(values)
    r, c = 6, 35
    assert dequantize(q8)[r, c] == f32(q8.quants[r, c]) * f32(q8.scales[r, 1])
    assert dequantize(q4)[r, c] == f32(f32(q4.codes[r, c]) * f32(q4.scales[r, 1])) + f32(q4.minimums[r, 1])
    assert dequantize(F32Matrix(values)) is values


def test_errors_are_within_half_a_step() -> None:
    """Half a quantization step, and the rounding of scale and minimum to f16."""
    values = sample(64)[4:]
    span8 = np.abs(values).max(axis=1, keepdims=True)
    span4 = values.max(axis=1, keepdims=True) - values.min(axis=1, keepdims=True)
    assert (np.abs(dequantize(quantize_q8(values)) - values) <= span8 * (0.5 / 127 + 2e-3)).all()
    assert (np.abs(dequantize(quantize_q4(values)) - values) <= span4 * (0.5 / 15 + 2e-3)).all()
    assert (np.abs(dequantize(quantize_q4(values)) - values) > span4 * (0.4 / 15)).any()


def test_chunking_does_not_change_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    values = sample(96)
    whole8, whole4 = quantize_q8(values), quantize_q4(values)
    monkeypatch.setattr(quantize, "CHUNK_VALUES", 200)
    assert (quantize_q8(values).quants == whole8.quants).all()
    assert (quantize_q4(values).codes == whole4.codes).all()


@pytest.mark.parametrize("make", [quantize_q8, quantize_q4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.array(0x7FA00000, np.uint32).view(f32)])
def test_values_that_are_not_finite_are_refused(make: object, bad: float) -> None:
    """The last is a signalling NaN, which must not warn."""
    assert callable(make)
    values = sample(40)
    values[5, 37] = bad
    with pytest.raises(CorruptModelError, match=r"'blk\.7' holds NaN or infinite"):
        make(values, "blk.7")


@pytest.mark.parametrize("make", [quantize_q8, quantize_q4])
@pytest.mark.parametrize("huge", [1e7, -1e7, 3e38])
def test_scales_beyond_f16_are_refused(make: object, huge: float) -> None:
    assert callable(make)
    values = sample(40)
    values[5, 3], values[5, 4] = huge, -huge
    with pytest.raises(CorruptModelError, match="'blk\\.7' holds values beyond the range of f16"):
        make(values, "blk.7")
