"""f32 logits from GGUF files against llama.cpp's from the same files: the files are what its converter would write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp.core import PAGE_SIZE
from offramp.model.checkpoint import open_checkpoint
from offramp.model.families import FAMILIES
from offramp.native import build_executor
from offramp.testing.batches import chain, pack_rows
from tests.oracle.gguf_cases import POSITIONS, RECORDED, TOKENS, cases, write

CASES = cases()
COARSE = 1e-3
"""For Gemma: llama.cpp takes gelu from a table in f16."""


def test_every_case_and_family_is_recorded() -> None:
    with np.load(RECORDED) as recorded:
        assert set(recorded.files) == CASES.keys()
    assert {config.family for config in CASES.values()} == FAMILIES.keys() - {"mistral"}  # whose files are llama's


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    weights = open_checkpoint(tmp_path / f"{name}.gguf").weights("f32")
    num_pages = -(-len(TOKENS) // PAGE_SIZE)
    executor = build_executor(weights, kv="f32", num_pages=num_pages, threads=1)
    rows = pack_rows(chain(TOKENS), [list(range(num_pages))])
    h = executor.run_layers(executor.embed(rows), rows, 0, weights.config.num_layers)
    got = executor.logits(h.take(np.array(POSITIONS, np.int32)))
    with np.load(RECORDED) as recorded:
        expected = recorded[name]
    worst = (np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)).max()
    assert worst < (COARSE if name.startswith("gemma3") else 1e-4)
