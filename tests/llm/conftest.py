"""Models for the front door: scripted ones whose answers are known, and a tiny real one on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import LLM
from offramp.testing.models import write_chat_model


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf")


@pytest.fixture
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared weights go to a folder of the tests."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(cache_folder))
    return cache_folder


@pytest.fixture
def toy_llm(toy_path: Path, own_cache: Path) -> Iterator[LLM]:
    with LLM(str(toy_path), threads=1) as llm:
        yield llm
