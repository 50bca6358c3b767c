"""`hf:` against a hub on this machine: only what is needed, by the user's own settings, also twice at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp.testing.checkpoints import role_values, write_safetensors_checkpoint
from offramp.testing.toy import toy_config, toy_source
from tests.model.fake_hub import COMMIT, TOKEN, FakeHub, serving

REPO = "org/toy"
RESOLVE = """
import sys
from offramp.errors import OfframpError
from offramp.model.sources import resolve
try:
    print(resolve(sys.argv[1]))
except OfframpError as error:
    print(f"{type(error).__name__}: {error.message}; {error.hint}")
"""
NEEDED = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
}
UNNEEDED = {
    "README.md",
    "pytorch_model.bin",
    "training_args.json",
    "original/params.json",
    "onnx/config.json",
    "onnx/model.safetensors",
    "consolidated.safetensors",
    "toy.gguf",
}


def repository(folder: Path, *, num_shards: int = 2) -> dict[str, bytes]:
    """A checkpoint, and beside it what hub repositories hold besides."""
    config = toy_config(num_layers=2)
    write_safetensors_checkpoint(folder, config, role_values(toy_source(config, seed=1)), num_shards=num_shards)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: f"this is {name}".encode() for name in NEEDED | UNNEEDED} | files


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    with serving(FakeHub(REPO, repository(tmp_path_factory.mktemp("repository")))) as hub:
        yield hub


def start(source: str, hub: FakeHub, home: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that resolves `source`."""
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", RESOLVE, source],
        env=os.environ | settings | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def resolved(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def test_two_at_once_get_one_whole_model_and_only_what_is_needed(hub: FakeHub, tmp_path: Path) -> None:
    hub.asked.clear()
    processes = [start(f"hf:{REPO}", hub, tmp_path) for _ in range(2)]
    first, second = map(resolved, processes)
    assert first == second
    path = Path(first)
    assert path.name == COMMIT
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    shards = {name for name in hub.files if name.startswith("model-")}
    wanted = {*NEEDED, *shards, "model.safetensors.index.json"}
    assert len(shards) == 2
    assert found == {name: hub.files[name] for name in wanted}
    assert hub.fetched() == sorted(wanted), "each file once"
    hub.asked.clear()
    assert resolved(start(f"hf:{REPO}", hub, tmp_path, HF_HUB_OFFLINE="1")) == first
    assert hub.asked == []


def test_one_file_of_a_revision(hub: FakeHub, tmp_path: Path) -> None:
    hub.asked.clear()
    path = Path(resolved(start(f"hf:{REPO}/toy.gguf@v2", hub, tmp_path)))
    assert path.read_bytes() == b"this is toy.gguf"
    assert {path for _, path in hub.asked if REPO in path} == {f"/{REPO}/resolve/v2/toy.gguf"}


def test_without_the_token_nothing_comes(hub: FakeHub, tmp_path: Path) -> None:
    told = resolved(start(f"hf:{REPO}", hub, tmp_path, HF_TOKEN="wrong"))
    assert told.startswith(f"ModelNotFoundError: can't fetch hf:{REPO}: ")
    assert "hf auth login" in told


def test_what_can_not_run_is_refused_before_its_weights_come(hub: FakeHub, tmp_path: Path) -> None:
    fields = json.loads(hub.files["config.json"]) | {"architectures": ["MambaForCausalLM"], "model_type": "mamba"}
    with serving(FakeHub(REPO, {**hub.files, "config.json": json.dumps(fields).encode()})) as foreign:
        told = resolved(start(f"hf:{REPO}", foreign, tmp_path))
        assert told.startswith("UnsupportedModelError: ")
        assert "amba" in told
        assert not [name for name in foreign.fetched() if name.endswith(".safetensors")]
