"""Models for the server: a tiny real one on disk, and scripted ones that step when the test lets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.core import Ids
from offramp.engine.cost_table import CostTable
from offramp.engine.measure import measure_costs
from offramp.llm import LoadedModel, load_model
from offramp.llm import costs as costs_module
from offramp.model.executor import LayerExecutor
from offramp.testing.gate import Gate
from offramp.testing.models import write_chat_model


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny chat model with random weights, as one file."""
    return write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf")


@pytest.fixture
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared weights and measured costs go to a folder of the tests."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(cache_folder))
    return cache_folder


@pytest.fixture
def quick_costs(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs, where drafts need them, are measured roughly."""

    def measure(executor: LayerExecutor, pages: Ids) -> CostTable:
        return measure_costs(executor, pages, box_seconds=0.05)

    monkeypatch.setattr(costs_module, "measure_costs", measure)


@pytest.fixture
def toy_model(toy_path: Path, own_cache: Path) -> LoadedModel:
    """The tiny model, loaded: for one engine at a time."""
    return load_model(toy_path, threads=1)


@pytest.fixture
def gate() -> Gate:
    """For `offramp.testing.gate.gated_model`."""
    return Gate()
