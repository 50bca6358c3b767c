"""`inspect`, `list`, `pull`, `remove`, `bench step`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.model.model_cache import ModelCache


@pytest.fixture
def fetched(offramp: Callable[..., Any], toy_model: str, session_cache: Path) -> str:
    """A model in the cache as if it had been fetched; its source."""

    def fill(scratch: Path) -> tuple[Path, str]:
        (scratch / "done").mkdir()
        (scratch / "done" / "toy.gguf").write_bytes(Path(toy_model).read_bytes())
        return scratch / "done", "1.0"

    ModelCache(session_cache).make("toy-model", "1.0", fill)
    return "pypi:toy-model==1.0"


def test_list_pull_remove(offramp: Callable[..., Any], fetched: str, session_cache: Path) -> None:
    path = session_cache / "models" / "toy-model-1.0" / "toy.gguf"
    assert offramp("list").out.split()[0::4] == [fetched]
    [listed] = json.loads(offramp("list", "--json").out)
    assert (listed["name"], listed["path"], listed["num_bytes"]) == (fetched, str(path), path.stat().st_size)
    pulled = offramp("pull", fetched)
    assert (pulled.code, pulled.out, pulled.err) == (0, f"{path}\n", "")
    removed = offramp("remove", fetched)
    assert (removed.code, removed.out) == (0, "")
    assert "freed" in removed.err
    assert not path.exists()
    empty = offramp("list")
    assert (empty.code, empty.out) == (0, "")
    assert "offramp pull" in empty.err
    assert json.loads(offramp("list", "--json").out) == []


def test_inspect_tells_what_a_model_is(offramp: Callable[..., Any], toy_model: str) -> None:
    facts = json.loads(offramp("inspect", toy_model, "--json").out)
    assert (facts["kind"], facts["max_context"], facts["chat_template"]) == ("gguf", 256, True)
    assert facts["config"]["num_layers"] == 4
    assert facts["tensors"]["Q8_0"]["count"] == 4 * 7 + 1
    assert facts["tensors"]["F32"]["count"] == 4 * 2 + 1
    assert facts["tokenizer"]["bos"] == {"id": 1, "text": "<|im_start|>"}
    assert facts["tokenizer"]["ends"] == [{"id": 2, "text": "<|im_end|>"}]
    assert facts["num_bytes"] == Path(toy_model).stat().st_size
    assert facts["kv_bytes_per_token"]["f16"] * 2 == facts["kv_bytes_per_token"]["f32"]


def test_inspect_for_people(offramp: Callable[..., Any], toy_model: str) -> None:
    lines = offramp("inspect", toy_model).out.splitlines()
    assert "kind: gguf" in lines
    assert "  num_layers: 4" in lines


def test_bench_step_prints_a_table_and_one_line_of_json(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("bench", "step", "-m", toy_model, "--rows", "4,1", "--seconds", "0.001", "--context", "40")
    assert (done.code, done.out.count("\n")) == (0, 1), done.err
    result = json.loads(done.out)
    parts = ["0:4", "0:1", "1:2", "2:4", "head"]
    assert [(cell["part"], cell["rows"]) for cell in result["times"]] == [(p, n) for n in (1, 4) for p in parts]
    assert all(0 < cell["least_ms"] <= cell["median_ms"] and cell["repeats"] >= 3 for cell in result["times"])
    assert {"offramp", "python", "cpu", "measured_at", "source_hash", "threads", "kernels"} <= set(result)
    assert "layers 2:4" in done.err


def test_bench_step_refuses_a_context_that_the_model_lacks(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("bench", "step", "-m", toy_model, "--context", "256")
    assert (done.code, done.out) == (2, "")
    assert "256" in done.err
