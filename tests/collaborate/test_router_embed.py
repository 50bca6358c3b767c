"""Embeddings are the states that the model itself has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp.collaborate.router.embed import MOST_TOKENS, embed, pages_needed
from offramp.core import Rows
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel, load_model
from offramp.testing.toy import toy_config


@pytest.fixture
def toy(toy_path: Path, own_cache: Path) -> LoadedModel:
    return load_model(toy_path, threads=1)


def states(toy: LoadedModel, tokens: np.ndarray, depth: int) -> np.ndarray:
    """[tokens, hidden], in one call."""
    positions = np.arange(len(tokens), dtype=np.int32)
    rows = Rows.plain(tokens, np.zeros(len(tokens), np.int32), positions, [np.arange(16, dtype=np.int32)])
    return toy.executor.run_layers(toy.executor.embed(rows), rows, 0, depth).numpy().copy()


@pytest.mark.parametrize("count", [1, 5, 128, 129, 200])
def test_the_last_state_and_the_mean_of_all(count: int, toy: LoadedModel, rng: np.random.Generator) -> None:
    tokens = rng.integers(3, 250, count).astype(np.int32)
    depths = (1, toy.config.num_layers)
    pages = np.array([11, 3, 9, 1, 0, 8, 2, 5], np.int32)
    found = embed(toy.executor, tokens, depths, pages)
    assert found.shape == (2, 2 * toy.config.hidden_size)
    for place, depth in enumerate(depths):
        wanted = states(toy, tokens, depth)
        last, mean = np.split(found[place], 2)
        assert (last == wanted[-1]).all()
        assert mean == pytest.approx(wanted.mean(axis=0, dtype=np.float64), abs=1e-6)


def test_of_long_prompts_the_last_tokens_count(toy: LoadedModel, rng: np.random.Generator) -> None:
    most = toy.config.max_context
    assert most < MOST_TOKENS
    tokens = rng.integers(3, 250, most + 70).astype(np.int32)
    pages = np.arange(pages_needed(toy.config, len(tokens)), dtype=np.int32)
    assert len(pages) == pages_needed(toy.config, most)
    whole = embed(toy.executor, tokens, (2,), pages)
    assert (whole == embed(toy.executor, tokens[-most:], (2,), pages)).all()
    assert pages_needed(toy_config(max_context=4096), 4000) == MOST_TOKENS // 32


def test_what_is_not_there_is_refused(toy: LoadedModel) -> None:
    pages = np.arange(4, dtype=np.int32)
    with pytest.raises(InvalidRequestError, match="empty"):
        embed(toy.executor, np.zeros(0, np.int32), (1,), pages)
    for depths in ((0,), (99,), (2, 1), (1, 1)):
        with pytest.raises(InvalidRequestError, match="depth"):
            embed(toy.executor, np.array([5], np.int32), depths, pages)
