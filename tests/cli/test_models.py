"""`list`, `pull`, `remove`, `bench step`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.model.model_cache import ModelCache


def fill(scratch: Path, model: str) -> tuple[Path, str]:
    """What a download leaves."""
    (scratch / "done").mkdir()
    (scratch / "done" / "toy.gguf").write_bytes(Path(model).read_bytes())
    return scratch / "done", "1.0"


@pytest.fixture
def fetched(offramp: Callable[..., Any], toy_model: str, session_cache: Path) -> str:
    """A model in the cache as if it had been fetched; its source."""
    ModelCache(session_cache).make("toy-model", "1.0", lambda scratch: fill(scratch, toy_model))
    return "pypi:toy-model==1.0"


def test_list_pull_remove(offramp: Callable[..., Any], fetched: str, session_cache: Path) -> None:
    path = session_cache / "models" / "toy-model-1.0" / "toy.gguf"
    assert offramp("list").out.split()[0::7] == [fetched]
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


def prepare(offramp: Callable[..., Any], model: str) -> None:
    assert offramp("generate", "hi", "-m", model, "--max-tokens", "1", "--threads", "1").code == 0


def prepared(cache: Path) -> int:
    return sum(path.stat().st_size for path in (cache / "prepared").glob("*.offw"))


def test_prepared_weights_are_listed_and_removed_with_their_model(
    offramp: Callable[..., Any], toy_model: str, fetched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path))
    file = ModelCache(tmp_path).make("toy-model", "1.0", lambda scratch: fill(scratch, toy_model)).folder / "toy.gguf"
    prepare(offramp, fetched)
    prepare(offramp, toy_model)
    both = prepared(tmp_path)
    [listed] = json.loads(offramp("list", "--json").out)
    assert 0 < listed["prepared_bytes"] < both
    assert f"{listed['prepared_bytes'] / 2**20:.1f} MiB prepared  {file}" in offramp("list").out
    assert f"prepared from {toy_model}" in offramp("list").err
    assert offramp("remove", "--prepared").err.startswith("removed 0 prepared files, ")
    assert offramp("remove", fetched).code == 0
    assert not file.exists()
    assert prepared(tmp_path) == both - listed["prepared_bytes"]


def test_prepared_weights_are_removed_alone(
    offramp: Callable[..., Any], toy_model: str, fetched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    file = ModelCache(tmp_path / "cache").make("toy-model", "1.0", lambda scratch: fill(scratch, toy_model)).folder
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(toy_model).read_bytes())
    for model in (fetched, toy_model, str(copy)):
        prepare(offramp, model)
    for name in (fetched, toy_model):
        before = prepared(tmp_path / "cache")
        assert offramp("remove", "--prepared", name).err.startswith("removed 1 prepared file, ")
        assert 0 < prepared(tmp_path / "cache") < before
    assert (file / "toy.gguf").exists()
    assert Path(toy_model).exists()
    copy.unlink()
    assert "prepared from models that have gone or changed: offramp remove --prepared" in offramp("list").err
    assert offramp("remove", "--prepared").err.startswith("removed 1 prepared file, ")
    assert list((tmp_path / "cache" / "prepared").iterdir()) == []
    assert "gone" not in offramp("list").err


def test_bench_step_prints_a_table_and_one_line_of_json(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("bench", "step", "-m", toy_model, "--rows", "4,1", "--seconds", "0.001", "--context", "40")
    assert (done.code, done.out.count("\n")) == (0, 1), done.err
    result = json.loads(done.out)
    parts = ["0:4", "0:1", "1:2", "2:4", "head"]
    assert [(cell["part"], cell["rows"]) for cell in result["times"]] == [(p, n) for n in (1, 4) for p in parts]
    assert all(0 < cell["least_ms"] <= cell["median_ms"] and cell["repeats"] >= 3 for cell in result["times"])
    assert result["weights"] == {"q8": 4 * 7 + 1}
    assert {"offramp", "python", "cpu", "measured_at", "source_hash", "threads", "kernels"} <= set(result)
    assert "layers 2:4" in done.err


def test_bench_step_refuses_a_context_that_the_model_lacks(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("bench", "step", "-m", toy_model, "--context", "256")
    assert (done.code, done.out) == (2, "")
    assert "256" in done.err
