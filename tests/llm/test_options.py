"""Options of `LLM` are refused by name, by type and range, before anything is loaded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from offramp import LLM, InvalidRequestError
from offramp.llm.serving import Serving

HUGE = 10**5000
WRONG: dict[str, list[Any]] = {
    "model": [None, 5, b"toy.gguf", ["toy.gguf"]],
    "weights": [None, [], 5, "AUTO", "q5", b"q8"],
    "kv": [None, [], 5, "q8", {}],
    "threads": [0, -1, 257, "2", 1.5, True, [], HUGE],
    "max_context": [0, 1, "9", 9.5, True, [], -HUGE],
    "mode": [None, [], {}, 5, "x", "calibrated", "unchecked"],
    "draft": [[], {}, 5, "x", "", "off,auto", "ngram,ngram", "off,ngram", "model", "early_exit", "eagle", HUGE],
    "draft_length": [None, [], 5, "x", ""],
    "max_draft": [-1, 65, "4", 1.5, True, [], HUGE],
    "draft_memory": [-1, 1, "15KiB", 1.5, "", "1e3", [], b"5", True, HUGE],
    "draft_model": ["", 5, [], b"toy.gguf", True],
    "drafter": ["", 5, [], b"pack", True],
    "little_rollback": [-0.1, math.nan, math.inf, 1e7, "3", True, [], HUGE],
    "little_fallback": [-0.1, 1.1, math.nan, math.inf, "0.6", True, [], HUGE],
    "max_little": [0, -1, 65, 1.5, "4", True, [], HUGE],
    "little_calibration": ["", "x", 5, [], "x\0", "y" * 5000],
    "verifier": [None, [], 5, "x", "", "typical"],
    "exits": ["", "x", 5, [], HUGE, "x\0", "y" * 5000],
    "risk": [0, 1, -0.1, 1.5, "0.05", True, math.nan, math.inf, HUGE],
    "exit_threshold": [-0.1, 2.1, math.nan, True, [], {}, {0: 0.5}, {"6": 0.5}, {6: 3}, {6: math.nan}, "", "x", "nan"],
    "exit_measure": ["", "softmax", 5, []],
    "exit_predictor": ["", "pack", "pack:", "pack:x", "pack:2", "mlp:0.5", "similarity:nan", 0.5, [], HUGE],
    "exit_decay": [0, -1, 1.5, "64", True, HUGE],
    "exit_fill": ["", "eager", 5, []],
    "exit_batching": ["", "literal", "barriers", 5, []],
    "max_num_seqs": [0, -5, 4097, "4", 1.5, None, True, HUGE],
    "max_num_batched_tokens": [0, 65537, "4", 2.5, None, [], HUGE],
    "kv_memory": [0, -1, 1.5, "", "1e3", "9" * 400, [], b"5", True, HUGE],
}
WRONG["exit_threshold"] += ["6:", "6:x", "6:0.9,", "6:0.9,6:0.8", "0:0.9", "x:0.9", "6:nan", "6:3", "rate", "rate:2"]
WRONG["exit_threshold"] += ["rate:-0.1", "depth:0", "queue:-1", "beta:nan", "rate:0.5,6:0.9", "6" * 5000, HUGE]
CASES = [(name, index) for name, values in WRONG.items() for index in range(len(values))]


@pytest.mark.parametrize(("name", "index"), CASES)
def test_impossible_options_are_refused_before_the_model_is_looked_for(name: str, index: int) -> None:
    value = WRONG[name][index]
    with pytest.raises(InvalidRequestError, match=f"^{name}=") as caught:
        LLM(**{"model": "no-such-model", name: value})
    assert caught.value.param == name
    assert len(str(caught.value)) < 150


SERVING = [
    "mode",
    "draft",
    "draft_length",
    "max_draft",
    "draft_memory",
    "draft_model",
    "drafter",
    "verifier",
    "max_num_seqs",
    "max_num_batched_tokens",
]


@pytest.mark.parametrize("name", SERVING)
def test_over_a_loaded_model_too(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(InvalidRequestError, match=f"^{name}="):
            Serving(**{name: value})


def test_a_context_beyond_the_models_is_refused(toy_path: Path, own_cache: Path) -> None:
    for value in (257, HUGE):
        with pytest.raises(InvalidRequestError, match="max_context=") as caught:
            LLM(toy_path, max_context=value)
        assert "256" in caught.value.hint
