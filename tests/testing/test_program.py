"""The walk that compares executors can fail: it is repeatable, and notices one changed rule of the arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from offramp.model.tensors import layer_weights
from offramp.testing import arithmetic
from offramp.testing.program import PROGRAM_PAGES, Outputs, Program, same_bits
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONFIG = toy_config(num_layers=2, hidden_size=36, intermediate_size=50, vocab_size=70)


def walk(seed: int = 1) -> Outputs:
    source = toy_source(CONFIG, seed=3, weights="q4")
    executor = TwinExecutor(source, num_pages=PROGRAM_PAGES)
    return Program(executor, layer_weights(source, 0), seed).run(6)


def pairwise_fold(p: arithmetic.F32) -> arithmetic.F32:
    return np.asarray(
        ((p[..., 0] + p[..., 1]) + (p[..., 2] + p[..., 3])) + ((p[..., 4] + p[..., 5]) + (p[..., 6] + p[..., 7]))
    )


def regrouped_swiglu(gate: arithmetic.F32, up: arithmetic.F32) -> arithmetic.F32:
    return np.asarray(gate * (up / (np.float32(1) + arithmetic.exp(-gate))))


def test_a_walk_is_repeatable() -> None:
    assert all(same_bits(a, b) for a, b in zip(walk(), walk(), strict=True))


@pytest.mark.parametrize(("rule", "broken"), [("fold8", pairwise_fold), ("swiglu", regrouped_swiglu)])
def test_a_changed_rule_is_noticed(rule: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = walk()
    monkeypatch.setattr(arithmetic, rule, broken)
    assert not all(same_bits(a, b) for a, b in zip(walk(), expected, strict=True))


def test_same_bits_is_strict_but_for_nan_payloads() -> None:
    plain = np.array([0.0, np.nan], np.float32)
    other_nan = np.array([0x00000000, 0x7FC00001], np.uint32).view(np.float32)
    assert same_bits(plain, other_nan)
    assert not same_bits(plain, np.array([-0.0, np.nan], np.float32))
    assert not same_bits(plain, np.array([0.0, 1.0], np.float32))
    assert not same_bits(plain, plain[:1])
    assert not same_bits(plain, plain.astype(np.float64))
