"""The canonical arithmetic of docs/arithmetic.md in plain numpy: the slow truth that the kernels are compared with.

Vectorized over whatever the page leaves free (rows, outputs, heads); a Python loop wherever it fixes an order. Numpy's
elementwise f32 operations round once each, as the page asks; sums over f32 values are never left to numpy.
Integer sums go through float64, where every partial sum is an exact integer.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offramp.model.executor import LogitSummary
from offramp.model.tensors import BLOCK, F32Matrix, Matrix, Q8Matrix, Vector

F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

LANES = 8
ACTIVATION_MAX = np.float32(32767)
TINY_ROW = np.float32(1e-30)

EXP_LOW, EXP_HIGH = np.float32(-87), np.float32(88)
GELU_SLOPE, GELU_CUBIC = np.float32(2 * math.sqrt(2 / math.pi)), np.float32(0.044715)
LOG2_E = np.float32(1.44269504)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
EXP_COEFFICIENTS = [np.float32(1 / math.factorial(n)) for n in range(7, -1, -1)]


def fold8(p: F32) -> F32:
    """Fold the last axis of eight partial sums in the fixed order."""
    assert p.shape[-1] == LANES
    even = (p[..., 0] + p[..., 4]) + (p[..., 2] + p[..., 6])
    odd = (p[..., 1] + p[..., 5]) + (p[..., 3] + p[..., 7])
    return np.asarray(even + odd, dtype=np.float32)


def sum8(terms: F32, keep: Mask | None = None) -> F32:
    """Sum the last axis by index mod 8, ascending, then fold; terms outside `keep` are skipped, not added as zero."""
    partial = np.zeros((*terms.shape[:-1], LANES), np.float32)
    for start in range(0, terms.shape[-1], LANES):
        chunk = terms[..., start : start + LANES]
        lanes = partial[..., : chunk.shape[-1]]
        summed = lanes + chunk
        lanes[...] = summed if keep is None else np.where(keep[..., start : start + LANES], summed, lanes)
    return fold8(partial)


def exp(x: F32) -> F32:
    """The engine's exp: clamped to [-87, 88], NaN for NaN."""
    nan = np.isnan(x)
    x = np.where(x < EXP_LOW, EXP_LOW, x)
    x = np.where(x > EXP_HIGH, EXP_HIGH, x)
    x = np.where(nan, np.float32(0), x)
    n = np.rint(x * LOG2_E)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(x, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = p * r + coefficient
    power = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    return np.asarray(np.where(nan, np.float32(np.nan), p * power), dtype=np.float32)


def rms_norm(x: F32, weight: Vector, eps: float) -> F32:
    """RMSNorm of every row, [rows, n] -> [rows, n]."""
    mean = sum8(x * x) / np.float32(x.shape[1])
    r = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return np.asarray((x * r[:, None]) * weight, dtype=np.float32)


def rope(x: F32, cos: F32, sin: F32) -> F32:
    """Rotate pairs (i, i + half) of every head: x [rows, heads, head_dim], cos and sin [rows, half]."""
    half = cos.shape[1]
    x1, x2 = x[:, :, :half], x[:, :, half : 2 * half]
    c, s = cos[:, None, :], sin[:, None, :]
    return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s, x[:, :, 2 * half :]], axis=2)


def swiglu(gate: F32, up: F32) -> F32:
    one = np.float32(1)
    return np.asarray((gate / (one + exp(-gate))) * up, dtype=np.float32)


def silu(x: F32) -> F32:
    return swiglu(x, np.ones_like(x))


def geglu(gate: F32, up: F32) -> F32:
    """Gelu's tanh approximation of the gate: 0.5 * (1 + tanh(z / 2)) is 1 / (1 + exp(-z))."""
    one = np.float32(1)
    z = GELU_SLOPE * (gate + GELU_CUBIC * ((gate * gate) * gate))
    return np.asarray((gate / (one + exp(-z))) * up, dtype=np.float32)


def quantize_rows(x: F32) -> tuple[NDArray[np.float64], F32]:
    """int16 activations (as exact float64) [rows, n] and a scale a row; NaN scale where not finite."""
    finite = np.asarray(np.isfinite(x).all(axis=1))
    safe = np.where(finite[:, None], x, np.float32(0))
    amax = np.abs(safe).max(axis=1)
    live = amax >= TINY_ROW
    inverse = ACTIVATION_MAX / np.where(live, amax, np.float32(1))
    codes = np.clip(np.rint(safe * inverse[:, None]), -ACTIVATION_MAX, ACTIVATION_MAX)
    codes = np.where(live[:, None], codes, np.float32(0))
    scales = np.where(live, amax / ACTIVATION_MAX, np.float32(0))
    return codes.astype(np.float64), np.where(finite, scales, np.float32(np.nan)).astype(np.float32)


def matmul(x: F32, matrix: Matrix) -> F32:
    """Every row times a matrix, [rows, in] -> [rows, out]."""
    assert x.shape[1] == matrix.shape[1], (x.shape, matrix.shape)
    return _matmul_f32(x, matrix.values) if isinstance(matrix, F32Matrix) else _matmul_blocks(x, matrix)


def _matmul_f32(x: F32, weights: F32) -> F32:
    acc = np.zeros((x.shape[0], weights.shape[0]), np.float32)
    for i in range(x.shape[1]):
        acc = acc + weights[None, :, i] * x[:, i, None]
    return acc


def _matmul_blocks(x: F32, matrix: Matrix) -> F32:
    assert not isinstance(matrix, F32Matrix)
    codes = matrix.quants if isinstance(matrix, Q8Matrix) else matrix.codes
    num_out, padded = codes.shape
    a, scale = quantize_rows(x)
    a = np.pad(a, ((0, 0), (0, padded - a.shape[1])))
    acc = np.zeros((x.shape[0], num_out), np.float32)
    for block in range(padded // BLOCK):
        columns = slice(block * BLOCK, (block + 1) * BLOCK)
        t = (a[:, columns] @ codes[:, columns].astype(np.float64).T).astype(np.float32)
        acc = acc + t * matrix.scales[:, block].astype(np.float32)
        if not isinstance(matrix, Q8Matrix):
            total = a[:, columns].sum(axis=1).astype(np.float32)
            acc = acc + total[:, None] * matrix.minimums[:, block].astype(np.float32)
    return np.asarray(acc * scale[:, None], dtype=np.float32)


def matrix_rows(matrix: Matrix, ids: NDArray[np.int32]) -> F32:
    """The chosen outputs' weights as f32, [ids, in]: the embedding of tokens."""
    if isinstance(matrix, F32Matrix):
        return matrix.values[ids]
    width = matrix.shape[1]
    codes = matrix.quants if isinstance(matrix, Q8Matrix) else matrix.codes
    values = codes[ids].astype(np.float32) * np.repeat(matrix.scales[ids].astype(np.float32), BLOCK, axis=1)
    if not isinstance(matrix, Q8Matrix):
        values = values + np.repeat(matrix.minimums[ids].astype(np.float32), BLOCK, axis=1)
    return np.ascontiguousarray(values[:, :width])


def matrix_subset(matrix: Matrix, ids: NDArray[np.int32]) -> Matrix:
    """The matrix of the chosen outputs only, in that order."""
    if isinstance(matrix, F32Matrix):
        return F32Matrix(matrix.values[ids])
    if isinstance(matrix, Q8Matrix):
        return Q8Matrix(matrix.quants[ids], matrix.scales[ids], matrix.in_features)
    return type(matrix)(matrix.codes[ids], matrix.scales[ids], matrix.minimums[ids], matrix.in_features)


def log_sum_exp(logits: F32) -> F32:
    """log(sum(exp)) of every row, [rows]; the last sum and the log in float64."""
    largest = logits.max(axis=1)
    sums = sum8(exp(logits - largest[:, None]))
    values = [float(m) + math.log(s) if s == s else math.nan for m, s in zip(largest, sums.astype(float), strict=True)]
    return np.array(values, dtype=np.float32)


def summarize(logits: F32) -> LogitSummary:
    """The likeliest of the columns of every row, and how sure the row is of it."""
    largest = logits.max(axis=1)
    fall = logits - largest[:, None]
    fall = np.where(fall < EXP_LOW, EXP_LOW, fall)
    weights = exp(fall)
    total, falls = sum8(weights), sum8(weights * fall)
    others = np.where(np.arange(logits.shape[1]) == logits.argmax(axis=1)[:, None], np.float32(-np.inf), logits)
    second = exp(others.max(axis=1) - largest)
    best = np.where(np.isfinite(largest), logits.argmax(axis=1), -1).astype(np.int32)
    scores = np.stack([np.float32(1) / total, (np.float32(1) - second) / total, _entropy(total, falls, logits)], axis=1)
    return LogitSummary(logits, best, scores)


def _entropy(total: F32, falls: F32, logits: F32) -> F32:
    most = math.log(max(2, logits.shape[1]))
    doubts = [math.log(t) - f / t if t == t else math.nan for t, f in zip(total.tolist(), falls.tolist(), strict=True)]
    return np.clip([1.0 - doubt / most for doubt in doubts], 0.0, 1.0).astype(np.float32)
