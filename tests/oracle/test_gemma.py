"""Gemma 3 270M with f32 weights and K/V against transformers reading the same GGUF (recorded by record.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offramp.core import PAGE_SIZE
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.executor import LayerExecutor
from offramp.model.tokenizer import Tokenizer
from offramp.native import build_executor
from tests.oracle.running import last_states, prompt_of, worst_logit

if TYPE_CHECKING:
    from .conftest import Recording

pytestmark = [pytest.mark.real_model, pytest.mark.gemma]

NUM_PROMPTS = 4
LONG = NUM_PROMPTS - 1
LOGIT_TOLERANCE = 1e-4
"""Of the largest logit of the row; measured: 3e-6."""


@pytest.fixture(scope="module")
def reference(recording: Callable[[str], Recording]) -> Recording:
    return recording("gemma3-270m")


@pytest.fixture(scope="module")
def checkpoint(gemma_path: Path) -> Checkpoint:
    return open_checkpoint(gemma_path)


@pytest.fixture(scope="module")
def executor(checkpoint: Checkpoint, reference: Recording) -> LayerExecutor:
    num_pages = -(-len(prompt_of(reference, LONG)["tokens"]) // PAGE_SIZE)
    return build_executor(checkpoint.weights("f32"), kv="f32", num_pages=num_pages)


def test_one_prompt_is_longer_than_the_window(checkpoint: Checkpoint, reference: Recording) -> None:
    windows = {layer.window for layer in checkpoint.config.attention}
    assert windows == {512, None}
    assert prompt_of(reference, LONG)["positions"].max() > 512


@pytest.mark.parametrize("prompt", range(NUM_PROMPTS))
def test_logits_equal_those_of_transformers(prompt: int, executor: LayerExecutor, reference: Recording) -> None:
    recorded = prompt_of(reference, prompt)
    assert worst_logit(executor, recorded) < LOGIT_TOLERANCE
    h = last_states(executor, recorded["tokens"].tolist())
    assert executor.top(h.take(recorded["positions"]), 1).ids[:, 0].tolist() == recorded["best_ids"][:, 0].tolist()


def test_token_ids_equal_those_of_transformers(checkpoint: Checkpoint, reference: Recording) -> None:
    assert not isinstance(checkpoint.tokenizer_source, Path)
    tokenizer = Tokenizer.from_gguf(checkpoint.tokenizer_source)
    for i in range(NUM_PROMPTS):
        recorded = prompt_of(reference, i)
        assert tokenizer.encode(str(recorded["text"])) == recorded["tokens"].tolist()
