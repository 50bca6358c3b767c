"""Fixtures shared by all tests. Toy models and executors are cheap: build them where they are used."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import ModelNotFoundError
from offramp.model.sources import locate, resolve
from offramp.testing.models import write_chat_model


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many answers the proof of structured output judged, and how many were cut before their end."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            counts[name] += value if name.startswith("structured_") else 0
    if counts["structured_ended"]:
        ended, cut = counts["structured_ended"], counts["structured_cut"]
        terminalreporter.write_line(f"answers under random schemas: {ended} ended and were valid, {cut} were cut")


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured counts as measured on a quiet machine, whatever else runs on this one."""
    monkeypatch.setattr("offramp.engine.measure.load_between", lambda before, after: 0.0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's GGUF file, fetched at the first use; OFFRAMP_TEST_MODEL names a copy to use instead."""
    return resolve(os.environ.get("OFFRAMP_TEST_MODEL", "smollm2-135m"))


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma 3 270M's GGUF file where it was fetched before: no test fetches it. OFFRAMP_TEST_GEMMA names a copy."""
    if copy := os.environ.get("OFFRAMP_TEST_GEMMA"):
        return locate(copy)
    try:
        return locate("gemma3-270m")
    except ModelNotFoundError:
        pytest.skip("Gemma 3 270M is not in the cache: `offramp pull gemma3-270m` fetches its 238 MB")


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny chat model with random weights, as one file."""
    return write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf")


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared weights and measured costs go to a folder of the tests."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(cache_folder))
    return cache_folder
