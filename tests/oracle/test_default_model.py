"""The default model with f32 weights and K/V against what transformers answered (recorded by record.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.executor import LayerExecutor
from offramp.model.tokenizer import Tokenizer
from offramp.native import build_executor
from tests.oracle.running import last_states, prompt_of, worst_logit

if TYPE_CHECKING:
    from .conftest import Recording

pytestmark = pytest.mark.real_model

NUM_PAGES = 16
NUM_PROMPTS = 10
SOME, REST = (0, 2, 4, 7, 9), (1, 3, 5, 6, 8)
"""Prompts that are always continued, and those that are where all is asked for."""
LOGIT_TOLERANCE = 1e-4
"""Of the largest logit of the row; measured: 3e-6."""
DECIDED_GAP = 1e-3
"""A greedy token may differ only where the reference's best two logits are closer than this."""


@pytest.fixture(scope="module")
def reference(recording: Callable[[str], Recording]) -> Recording:
    return recording("default-model")


@pytest.fixture(scope="module")
def checkpoint(default_model_path: Path) -> Checkpoint:
    return open_checkpoint(default_model_path)


@pytest.fixture(scope="module")
def executor(checkpoint: Checkpoint) -> LayerExecutor:
    return build_executor(checkpoint.weights("f32"), kv="f32", num_pages=NUM_PAGES)


def perplexity(executor: LayerExecutor, tokens: list[int]) -> float:
    """exp of the mean negative log-likelihood of every token but the first."""
    h = last_states(executor, tokens[:-1])
    total = 0.0
    for start in range(0, len(h), 64):
        some = np.arange(start, min(start + 64, len(h)), dtype=np.int32)
        logits, normalizers = executor.logits(h.take(some)), executor.top(h.take(some), 1).log_sum_exp
        chosen = logits[np.arange(len(some)), np.array(tokens)[some + 1]]
        total += float((normalizers.astype(np.float64) - chosen).sum())
    return float(np.exp(total / (len(tokens) - 1)))


@pytest.mark.parametrize("prompt", [0, 1, 7])
def test_logits_equal_those_of_transformers(prompt: int, executor: LayerExecutor, reference: Recording) -> None:
    assert worst_logit(executor, prompt_of(reference, prompt)) < LOGIT_TOLERANCE


@pytest.mark.parametrize("prompt", [*SOME, *(pytest.param(i, marks=pytest.mark.slow) for i in REST)])
def test_greedy_tokens_equal_those_of_transformers(prompt: int, executor: LayerExecutor, reference: Recording) -> None:
    """Along the reference's own continuation: one difference does not hide what comes after it."""
    tokens, greedy = reference[f"prompt{prompt}.tokens"], reference[f"prompt{prompt}.greedy"]
    assert len(greedy) == 64
    h = last_states(executor, [*tokens.tolist(), *greedy[:-1].tolist()])
    after_prompt = np.arange(len(tokens) - 1, len(h), dtype=np.int32)
    chosen = executor.top(h.take(after_prompt), 1).ids[:, 0]
    decided = reference[f"prompt{prompt}.gaps"] >= DECIDED_GAP
    assert decided.sum() > 48, "the recording decides too little"
    assert (chosen == greedy)[decided].all()


def test_perplexity_equals_that_of_transformers(executor: LayerExecutor, reference: Recording) -> None:
    assert perplexity(executor, reference["text.tokens"].tolist()) == pytest.approx(
        float(reference["text.perplexity"]), rel=1e-4
    )


@pytest.mark.parametrize("weights", [pytest.param("q8", marks=pytest.mark.slow), "auto"])
def test_quantized_perplexity_stays_close(weights: str, checkpoint: Checkpoint, reference: Recording) -> None:
    """What the stored formats and f16 K/V may cost; `auto` keeps the file's own q4 and q8 values."""
    executor = build_executor(checkpoint.weights(weights), num_pages=NUM_PAGES)  # type: ignore[arg-type]
    assert perplexity(executor, reference["text.tokens"].tolist()) == pytest.approx(
        float(reference["text.perplexity"]), rel=0.01
    )


def test_token_ids_equal_those_of_transformers(checkpoint: Checkpoint, reference: Recording) -> None:
    assert not isinstance(checkpoint.tokenizer_source, Path)
    tokenizer = Tokenizer.from_gguf(checkpoint.tokenizer_source)
    for key in (*(f"prompt{i}" for i in range(NUM_PROMPTS)), "text"):
        assert tokenizer.encode(str(reference[f"{key}.text"])) == reference[f"{key}.tokens"].tolist(), key
