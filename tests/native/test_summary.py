"""What summaries say of rows of logits: values, that they are a row's own bit for bit, that nonsense is no token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offramp.model.executor import ENTROPY, FINAL, MARGIN, SCORES, TOP_PROBABILITY, LogitSummary
from offramp.model.heads import HeadWeights
from offramp.model.hidden import ArrayHidden
from offramp.native import _native, build_executor, kernel_paths
from offramp.testing.program import same_bits
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor, summary_of

PATHS = kernel_paths()
EVERY_PATH = pytest.mark.parametrize("path", PATHS)
CONFIG = toy_config(num_layers=1, vocab_size=300)
REDUCED = np.arange(3, 300, 7, dtype=np.int32)


def summarize(logits: np.ndarray, path: str) -> LogitSummary:
    best = np.empty(len(logits), dtype=np.int32)
    scores = np.empty((len(logits), SCORES), dtype=np.float32)
    _native.summarize(np.ascontiguousarray(logits), best, scores, path=path)
    return LogitSummary(logits, best, scores)


def same(one: LogitSummary, other: LogitSummary) -> bool:
    """Bit for bit, NaN for NaN."""
    return np.array_equal(one.best, other.best) and np.array_equal(one.scores, other.scores, equal_nan=True)


def exact(logits: np.ndarray) -> np.ndarray:
    """The measures in float64, [rows, SCORES]."""
    x = logits.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.exp(x - x.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        doubt = -np.where(p > 0, p * np.log(p), 0.0).sum(axis=1)
    ordered = np.sort(np.concatenate([p, np.zeros((len(p), 1))], axis=1), axis=1)
    figures = np.empty((len(x), SCORES))
    figures[:, TOP_PROBABILITY] = ordered[:, -1]
    figures[:, MARGIN] = ordered[:, -1] - ordered[:, -2]
    figures[:, ENTROPY] = 1 - doubt / np.log(max(2, x.shape[1]))
    return figures


def random_logits(rng: np.random.Generator, count: int, width: int, scale: float = 4) -> np.ndarray:
    return (rng.normal(size=(count, width)) * scale).astype(np.float32)


@EVERY_PATH
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 63, 700, 8192, 8195])
def test_values_are_those_of_the_softmax(width: int, path: str) -> None:
    logits = random_logits(np.random.default_rng(width), 9, width)
    logits[1] = 0
    logits[2, width // 2] = logits[2].max()  # perhaps a tie
    logits[3, : width // 2] = -np.inf
    logits[4] *= 100
    summary = summarize(logits, path)
    assert summary.best.tolist() == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose(summary.scores, exact(logits), rtol=2e-6, atol=2e-6)


@EVERY_PATH
def test_certain_undecided_and_tied_rows(path: str) -> None:
    logits = np.array([[0, 200, 0, 0], [3, 3, 3, 3], [-90, 9, -90, 9]], dtype=np.float32)
    summary = summarize(logits, path)
    assert summary.best.tolist() == [1, 0, 1]
    assert summary.scores[:, TOP_PROBABILITY].tolist() == [1.0, 0.25, 0.5]
    assert summary.scores[:, MARGIN].tolist() == [1.0, 0.0, 0.0]
    assert summary.scores[:, ENTROPY].tolist() == pytest.approx([1.0, 0.0, 0.5], abs=1e-6)


@EVERY_PATH
def test_of_equal_logits_the_first_is_the_likeliest(path: str) -> None:
    rng = np.random.default_rng(5)
    for width in (2, 9, 40, 1000):
        logits = rng.integers(-3, 3, (50, width)).astype(np.float32)
        logits[::2][logits[::2] == 0] = -0.0
        summary = summarize(logits, path)
        assert summary.best.tolist() == logits.argmax(axis=1).tolist()
        tied = (logits == logits.max(axis=1, keepdims=True)).sum(axis=1) > 1
        assert np.array_equal(summary.scores[:, MARGIN] == 0, tied)


@EVERY_PATH
def test_a_row_without_a_finite_largest_logit_has_no_token_and_no_score(path: str) -> None:
    for width in (1, 5, 8, 19, 64):
        for value in (np.nan, np.inf):
            for at in range(width):
                logits = np.zeros((1, width), dtype=np.float32)
                logits[0, at] = value
                summary = summarize(logits, path)
                assert summary.best.tolist() == [-1]
                assert np.isnan(summary.scores).all()
        nothing = summarize(np.full((1, width), -np.inf, dtype=np.float32), path)
        assert nothing.best.tolist() == [-1]
        assert np.isnan(nothing.scores).all()


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 19)), elements=st.floats(width=32)))
@settings(max_examples=150, deadline=None)
def test_any_logits_score_within_bounds_or_not_at_all_alike_on_every_path(logits: np.ndarray) -> None:
    expected = summary_of(logits)
    largest = logits.max(axis=1)
    finite = np.isfinite(largest)
    assert np.array_equal(expected.best >= 0, finite)
    assert np.array_equal(np.isnan(expected.scores), np.repeat(~finite[:, None], SCORES, axis=1))
    assert ((expected.scores[finite] >= 0) & (expected.scores[finite] <= 1)).all()
    for path in PATHS:
        assert same(summarize(logits, path), expected), path


@EVERY_PATH
def test_ruled_out_tokens_count_as_impossible(path: str) -> None:
    logits = np.array([[1.0, -np.inf, 1.5, -np.inf]], dtype=np.float32)
    low = np.where(np.isinf(logits), np.float32(-200), logits)
    assert same(summarize(logits, path), summarize(low, path))


@EVERY_PATH
def test_paths_and_twin_agree_bit_for_bit_on_long_rows(path: str) -> None:
    rng = np.random.default_rng(1)
    for width in (130, 4096, 8195):
        logits = random_logits(rng, 7, width, scale=6)
        expected = summary_of(logits)
        assert same(summarize(logits, path), expected)
        assert same(summarize(logits[::-1], path), LogitSummary(logits, expected.best[::-1], expected.scores[::-1]))


def states(count: int) -> ArrayHidden:
    h = np.random.default_rng(3).standard_normal((count, CONFIG.hidden_size)) * 3
    h[count // 2, 1] = np.nan
    return ArrayHidden(h.astype(np.float32))


@EVERY_PATH
@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
def test_an_executor_summarizes_its_own_logits_whatever_the_batch_and_the_threads(reduced: bool, path: str) -> None:
    source, h = toy_source(CONFIG, seed=2, weights="q8"), states(17)
    twin = TwinExecutor(source, num_pages=1)
    weights = HeadWeights(vocab_ids=REDUCED)
    expected = twin.summarize(h, twin.add_head(weights) if reduced else FINAL)
    assert (expected.best < 0).sum() == 1
    for threads in (1, 2, 3):
        executor = build_executor(source, num_pages=1, threads=threads, path=path)
        head = executor.add_head(weights) if reduced else FINAL
        for count in (1, 2, 4, 5, 17):
            found = executor.summarize(ArrayHidden(h.numpy()[:count].copy()), head)
            assert same_bits(found.logits, expected.logits[:count])
            assert same(found, LogitSummary(found.logits, expected.best[:count], expected.scores[:count]))
        none = executor.summarize(ArrayHidden(np.empty((0, CONFIG.hidden_size), dtype=np.float32)), head)
        assert none.scores.shape == (0, SCORES)


def test_targets_of_the_wrong_shape_are_refused() -> None:
    best, scores = np.empty(1, dtype=np.int32), np.empty((1, SCORES), dtype=np.float32)
    logits = np.zeros((1, 4), dtype=np.float32)
    with pytest.raises(ValueError, match="no logits"):
        _native.summarize(logits[:, :0].copy(), best, scores, path=PATHS[0])
    with pytest.raises(ValueError, match="summary targets"):
        _native.summarize(logits, best, scores[:, :2].copy(), path=PATHS[0])
    with pytest.raises(ValueError, match="kernel path"):
        _native.summarize(logits, best, scores, path="quantum")
