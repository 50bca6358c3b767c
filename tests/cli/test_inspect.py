"""`offramp inspect`: what a model is and what would run, as JSON and for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.llm.loading import load_model
from offramp.model.config import LayerAttention, RopeConfig
from offramp.model.families import FAMILIES
from offramp.native import NativeExecutor, kernel_paths
from offramp.native.kv import page_bytes
from offramp.testing.checkpoints import role_values, write_safetensors_checkpoint
from offramp.testing.models import chat_tokenizer
from offramp.testing.toy import toy_config, toy_source

Inspect = Callable[..., dict[str, Any]]


@pytest.fixture
def inspect(offramp: Callable[..., Any]) -> Inspect:
    """The facts of a model."""

    def facts(model: str | Path) -> dict[str, Any]:
        done = offramp("inspect", str(model), "--json")
        assert done.code == 0, done.err
        return dict(json.loads(done.out))

    return facts


def test_it_tells_what_a_model_is(inspect: Inspect, toy_model: str) -> None:
    facts = inspect(toy_model)
    assert (facts["kind"], facts["family"], facts["max_context"], facts["chat_template"]) == (
        "gguf",
        "llama",
        256,
        True,
    )
    assert facts["config"]["num_layers"] == 4
    assert facts["num_parameters"] == sum(
        values.size for values in role_values(toy_source(loaded_config(toy_model), 3)).values()
    )
    assert facts["tensors"]["Q8_0"]["count"] == 4 * 7 + 1
    assert facts["tensors"]["F32"]["count"] == 4 * 2 + 1
    assert facts["tokenizer"]["bos"] == {"id": 1, "text": "<|im_start|>"}
    assert {"id": 2, "text": "<|im_end|>"} in facts["tokenizer"]["ends"]
    assert (facts["tokenizer"]["kind"], facts["tokenizer"]["pre"]) == ("gpt2", "smollm")
    assert facts["num_bytes"] == Path(toy_model).stat().st_size
    assert facts["kv_bytes_per_token"]["f16"] * 2 == facts["kv_bytes_per_token"]["f32"]
    assert facts["packs"] == []


def loaded_config(model: str) -> Any:
    return load_model(model, threads=1).config


def test_what_would_run_is_what_runs(inspect: Inspect, toy_model: str) -> None:
    runs = inspect(toy_model)["runs"]
    loaded = load_model(toy_model)
    assert isinstance(loaded.executor, NativeExecutor)
    assert runs["weights"] == dict(loaded.formats) == {"q8": 4 * 7 + 1}
    assert (runs["kv"], runs["kernels"], runs["threads"]) == (
        loaded.executor.kv,
        loaded.executor.path,
        loaded.executor.threads,
    )
    assert runs["kernels"] == kernel_paths()[-1]
    assert runs["context"] == loaded.max_context
    assert runs["kv_bytes"] == loaded.executor.num_pages * page_bytes(loaded.config, "f16")
    assert (runs["mode"], runs["draft"]) == ("lossless", "auto")


def test_without_memory_the_rest_is_told(inspect: Inspect, toy_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.llm.describing.available_memory", lambda: 100)
    runs = inspect(toy_model)["runs"]
    assert (runs["context"], runs["kv_bytes"], runs["weights"]) == (None, None, {"q8": 29})


def test_of_a_converted_model(offramp: Callable[..., Any], inspect: Inspect, toy_model: str, tmp_path: Path) -> None:
    path = tmp_path / "converted"
    assert offramp("convert", toy_model, "-o", str(path), "--weights", "q4").code == 0
    facts, source = inspect(path), inspect(toy_model)
    assert (facts["kind"], facts["source"]) == ("converted", "toy.gguf")
    assert facts["source_hash"] == load_model(toy_model, threads=1).source_hash
    for same in (
        "family",
        "num_parameters",
        "config",
        "tokenizer",
        "chat_template",
        "generation",
        "kv_bytes_per_token",
    ):
        assert facts[same] == source[same]
    assert {name: tensors["count"] for name, tensors in facts["tensors"].items()} == {"f32": 9, "q4": 28, "q8": 1}
    assert facts["runs"]["weights"] == {"q4": 28, "q8": 1}
    assert facts["runs"]["weights_bytes"] == (path / "weights.offw").stat().st_size
    assert facts["num_bytes"] == sum(file.stat().st_size for file in path.iterdir())


def test_of_a_directory_for_people(offramp: Callable[..., Any], tmp_path: Path) -> None:
    rope = RopeConfig(base=1000.0, rotary_dim=16)
    local = LayerAttention(rope=rope, window=8)
    config = toy_config(
        family="qwen3",
        form=FAMILIES["qwen3"].form,
        vocab_size=chat_tokenizer().vocab_size,
        num_layers=4,
        rope=rope,
        attention=(LayerAttention(rope=rope), LayerAttention(rope=rope), local, local),
    )
    content = json.loads(chat_tokenizer()._backend.to_str())
    write_safetensors_checkpoint(
        tmp_path, config, role_values(toy_source(config, seed=3)), json_files={"tokenizer.json": content}
    )
    done = offramp("inspect", str(tmp_path))
    assert done.code == 0, done.err
    assert {
        "kind: safetensors",
        "family: qwen3",
        "  num_layers: 4",
        '    layers 0-1: {"rope": {"base": 1000.0, "rotary_dim": 16, "scaling": null}, "window": null}',
        '    layers 2-3: {"rope": {"base": 1000.0, "rotary_dim": 16, "scaling": null}, "window": 8}',
        "  kind: tokenizer.json",
        "chat_template: no",
        "packs: none",
        "runs:",
        "  weights: q8 29",
    } <= set(done.out.splitlines())


@pytest.mark.real_model
def test_of_the_default_model(inspect: Inspect, default_model_path: Path) -> None:
    facts = inspect(default_model_path)
    assert (facts["family"], facts["num_parameters"], facts["num_bytes"]) == ("llama", 134_515_008, 98_362_432)
    assert (facts["max_context"], facts["chat_template"], facts["packs"]) == (8192, True, [])
    counts = {name: tensors["count"] for name, tensors in facts["tensors"].items()}
    assert counts == {"F32": 61, "Q4_1": 210, "Q8_0": 1}
    assert facts["tokenizer"] == {
        "kind": "gpt2",
        "pre": "smollm",
        "vocab_size": 49_152,
        "bos": {"id": 1, "text": "<|im_start|>"},
        "adds_bos": False,
        "ends": [{"id": 0, "text": "<|endoftext|>"}, {"id": 2, "text": "<|im_end|>"}],
    }
    assert facts["runs"]["weights"] == {"q4": 210, "q8": 1}


@pytest.mark.real_model
@pytest.mark.gemma
def test_of_gemma(inspect: Inspect, gemma_path: Path) -> None:
    facts = inspect(gemma_path)
    assert (facts["family"], facts["num_parameters"], facts["num_bytes"]) == ("gemma3", 268_098_176, 253_113_024)
    assert (facts["max_context"], facts["chat_template"], facts["packs"]) == (32_768, False, [])
    assert [layer["window"] for layer in facts["config"]["attention"]] == ([512] * 5 + [None]) * 3
    counts = {name: tensors["count"] for name, tensors in facts["tensors"].items()}
    assert counts == {"F32": 109, "Q4_K": 27, "Q5_0": 81, "Q6_K": 9, "Q8_0": 10}
    assert (facts["tokenizer"]["kind"], facts["tokenizer"]["vocab_size"]) == ("llama", 262_144)
    assert (facts["tokenizer"]["bos"], facts["tokenizer"]["adds_bos"]) == ({"id": 2, "text": "<bos>"}, True)
    assert facts["runs"]["weights"] == {"q8": 127}
