"""A tiny model on disk, and data for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offramp.testing.models import write_chat_model


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf"))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared weights go to a folder of the tests."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(session_cache))
    return session_cache


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"say {i} please"}) + "\n" for i in range(40)), encoding="utf-8")
    return path


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Answers that depend on the prompt's last letter alone: easy to learn."""
    path = tmp_path / "pairs.jsonl"
    letters = "abcd"
    rows = [{"prompt": f"word {i} {letters[i % 4]}", "reference": 3 * letters[i % 4].upper()} for i in range(120)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
