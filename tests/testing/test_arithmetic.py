"""The pieces of the canonical arithmetic against float64, and the rules that a tolerance would not catch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.model.tensors import F32Matrix, Q4Matrix, Q8Matrix
from offramp.testing import arithmetic


def test_exp_is_close_exact_at_zero_and_clamped() -> None:
    x = np.linspace(-86.9, 87.9, 20001, dtype=np.float32)
    np.testing.assert_allclose(arithmetic.exp(x), np.exp(x.astype(np.float64)), rtol=4e-7)
    assert arithmetic.exp(np.zeros(1, np.float32))[0] == 1.0
    low, high = arithmetic.exp(np.array([-np.inf, np.inf], np.float32))
    assert low == arithmetic.exp(np.array([-87], np.float32))[0] > 0
    assert high == arithmetic.exp(np.array([88], np.float32))[0] < np.inf
    assert np.isnan(arithmetic.exp(np.array([np.nan], np.float32)))[0]


@pytest.mark.parametrize("n", [1, 7, 8, 13, 64])
def test_sum8_adds_by_index_mod_8_then_folds(rng: np.random.Generator, n: int) -> None:
    terms = rng.standard_normal(n).astype(np.float32)
    p = [np.float32(0)] * 8
    for i, term in enumerate(terms):
        p[i % 8] = p[i % 8] + term
    expected = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
    assert arithmetic.sum8(terms) == expected


def test_sum8_skips_what_is_outside_even_nan(rng: np.random.Generator) -> None:
    terms = rng.standard_normal((2, 32)).astype(np.float32)
    keep = np.array([[True] * 20 + [False] * 12, [False] * 32])
    clean = np.where(keep, terms, np.float32(0))
    terms[~keep] = np.nan
    assert arithmetic.sum8(terms, keep).tolist() == arithmetic.sum8(clean).tolist()


def test_norm_rope_and_swiglu_are_close_to_float64(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 13)).astype(np.float32)
    weight = rng.standard_normal(13).astype(np.float32)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(arithmetic.rms_norm(x, weight, 1e-5), expected, rtol=1e-6)
    np.testing.assert_allclose(arithmetic.swiglu(x, x[::-1]), exact / (1 + np.exp(-exact)) * exact[::-1], rtol=2e-6)


def test_geglu_is_close_to_the_tanh_formula_and_survives_extremes() -> None:
    gate = np.linspace(-12, 12, 4001, dtype=np.float32)
    exact = gate.astype(np.float64)
    gelu = 0.5 * exact * (1 + np.tanh(math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)))
    np.testing.assert_allclose(arithmetic.geglu(gate, np.full_like(gate, 3)), 3 * gelu, rtol=2e-6, atol=1e-6)
    with np.errstate(all="ignore"):
        ends = arithmetic.geglu(np.array([-1e30, 0, 1e30, np.nan], np.float32), np.ones(4, np.float32))
    assert abs(ends[0]) < 1e-7
    assert ends[1:3].tolist() == [0, np.float32(1e30)]
    assert np.isnan(ends[3])


def test_silu_is_close_to_float64_and_survives_extremes() -> None:
    x = np.linspace(-20, 20, 4001, dtype=np.float32)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(arithmetic.silu(x), exact / (1 + np.exp(-exact)), rtol=2e-6)
    with np.errstate(all="ignore"):
        ends = arithmetic.silu(np.array([-1e30, 0, 1e30, np.nan], np.float32))
    assert abs(ends[0]) < 1e-7
    assert ends[1:3].tolist() == [0, np.float32(1e30)]
    assert np.isnan(ends[3])


def test_rope_turns_half_split_pairs_and_leaves_the_rest(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 10)).astype(np.float32)
    angle = rng.uniform(0, 6, (2, 4))
    got = arithmetic.rope(x, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))
    turned = (x[:, :, :4] + 1j * x[:, :, 4:8]) * np.exp(1j * angle)[:, None, :]
    np.testing.assert_allclose(got[:, :, :4] + 1j * got[:, :, 4:8], turned, rtol=1e-5, atol=1e-6)
    assert (got[:, :, 8:] == x[:, :, 8:]).all()


def test_quantized_rows_keep_the_largest_and_survive_extremes() -> None:
    rows = np.array([[1, -2, 0.5], [0, 0, 0], [1e-31, 0, 0], [1, np.nan, 3], [np.inf, 1, 1]], np.float32)
    with np.errstate(all="ignore"):
        codes, scales = arithmetic.quantize_rows(rows)
    assert codes[0].tolist() == [16384, -32767, 8192]
    assert codes[1:].any() == np.False_
    assert scales[0] == np.float32(2) / np.float32(32767)
    assert scales[1] == scales[2] == 0
    assert np.isnan(scales[3:]).all()


def q8_scalar(x: NDArray[np.float32], m: Q8Matrix | Q4Matrix) -> list[np.float32]:
    """One row times a quantized matrix, straight from the page, one number at a time."""
    amax = max(abs(v) for v in x)
    inverse = np.float32(32767) / amax
    a = [max(-32767, min(32767, int(np.rint(v * inverse)))) for v in x]
    results = []
    for out in range(m.shape[0]):
        acc = np.float32(0)
        for start in range(0, len(a), 32):
            block, b = a[start : start + 32], start // 32
            codes = (m.quants if isinstance(m, Q8Matrix) else m.codes)[out, start : start + len(block)]
            acc = acc + np.float32(sum(int(q) * v for q, v in zip(codes, block, strict=True))) * np.float32(
                m.scales[out, b]
            )
            if isinstance(m, Q4Matrix):
                acc = acc + np.float32(sum(block)) * np.float32(m.minimums[out, b])
        results.append(acc * (amax / np.float32(32767)))
    return results


@pytest.mark.parametrize("num_in", [5, 32, 70])
def test_quantized_matmul_is_the_page_bit_for_bit(rng: np.random.Generator, num_in: int) -> None:
    blocks = math.ceil(num_in / 32)
    x = rng.standard_normal((3, num_in)).astype(np.float32)
    real = np.arange(blocks * 32) < num_in
    scales = rng.uniform(0.001, 0.1, (5, blocks)).astype(np.float16)
    q8 = Q8Matrix(rng.integers(-127, 128, (5, blocks * 32)).astype(np.int8) * real, scales, num_in)
    q4 = Q4Matrix(rng.integers(0, 16, (5, blocks * 32)).astype(np.uint8) * real, scales, -scales, num_in)
    for matrix in (q8, q4):
        assert arithmetic.matmul(x, matrix).tolist() == [q8_scalar(row, matrix) for row in x]


def test_f32_matmul_adds_in_ascending_order() -> None:
    weights = F32Matrix(np.array([[1e8, 1.0, -1e8, 1.0]], np.float32))
    assert arithmetic.matmul(np.ones((1, 4), np.float32), weights).tolist() == [[1.0]]


def test_embedding_rows_equal_the_dequantized_matrix(rng: np.random.Generator) -> None:
    scales = rng.uniform(0.001, 0.1, (4, 2)).astype(np.float16)
    codes = rng.integers(0, 16, (4, 64)).astype(np.uint8)
    got = arithmetic.matrix_rows(Q4Matrix(codes, scales, -scales, 40), np.array([2, 0, 2], np.int32))
    wide = np.repeat(scales.astype(np.float32), 32, axis=1)
    expected = codes.astype(np.float32) * wide - wide
    assert (got == expected[[2, 0, 2], :40]).all()


def test_log_sum_exp_is_close_to_float64(rng: np.random.Generator) -> None:
    x = (10 * rng.standard_normal((4, 77))).astype(np.float32)
    exact = x.astype(np.float64)
    expected = np.log(np.exp(exact - exact.max(1, keepdims=True)).sum(1)) + exact.max(1)
    np.testing.assert_allclose(arithmetic.log_sum_exp(x), expected, rtol=1e-6)
