"""Every number of rows and odd sizes: what a row gives does not depend on how the kernels tile the call."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.native import build_executor, kernel_paths
from offramp.testing.batches import chain, pack_rows
from offramp.testing.toy import ToyFormat, toy_config, toy_source

FORMATS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
MAX_ROWS = 64
PAGES = [range(2)]


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("path", kernel_paths())
@pytest.mark.parametrize(
    ("hidden", "inner", "head_dim"), [(72, 200, 12), pytest.param(96, 40, 24, marks=pytest.mark.slow)]
)
def test_one_to_64_rows_equal_rows_alone(weights: ToyFormat, path: str, hidden: int, inner: int, head_dim: int) -> None:
    config = toy_config(
        num_layers=1,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=4,
        num_kv_heads=2,
        head_dim=head_dim,
        vocab_size=83,
    )
    model = build_executor(toy_source(config, seed=4, weights=weights), num_pages=2, threads=2, path=path)
    tokens = np.random.default_rng(0).integers(83, size=MAX_ROWS).tolist()

    def run(begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        rows = pack_rows(chain(tokens[begin:end], start=begin), PAGES)
        h = model.run_layers(model.embed(rows), rows, 0, 1)
        return h.numpy(), model.logits(h)

    alone = [run(i, i + 1) for i in range(MAX_ROWS)]
    states = np.concatenate([state for state, _ in alone])
    logits = np.concatenate([row for _, row in alone])
    for count in range(2, MAX_ROWS + 1):
        got_states, got_logits = run(0, count)
        np.testing.assert_array_equal(got_states, states[:count])
        np.testing.assert_array_equal(got_logits, logits[:count])


@pytest.mark.parametrize("weights", FORMATS)
def test_a_vocabulary_of_262144(weights: ToyFormat) -> None:
    config = toy_config(num_layers=1, hidden_size=40, vocab_size=262_144)
    source = toy_source(config, seed=6, weights=weights)
    rows = pack_rows(chain([0, 262_143, 131_072]), [range(1)])
    chosen = np.array([262_143, 0, 15, 16, 200_001], dtype=np.int32)
    expected = order = None
    for path in kernel_paths():
        model = build_executor(source, num_pages=1, threads=2, path=path)
        h = model.run_layers(model.embed(rows), rows, 0, 1)
        logits, top = model.logits(h), model.top(h, 3)
        if expected is None:
            expected, order = logits, np.argsort(-logits, axis=1, kind="stable")[:, :3]
        np.testing.assert_array_equal(logits, expected)
        np.testing.assert_array_equal(model.logits(h, vocab_ids=chosen), logits[:, chosen])
        np.testing.assert_array_equal(top.ids, order)
