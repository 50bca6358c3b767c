"""Models for the server: a tiny real one on disk, and scripted ones that step when the test lets them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from offramp.core import Ids
from offramp.engine.cost_table import CostTable
from offramp.engine.measure import measure_costs
from offramp.llm import LoadedModel, load_model
from offramp.llm import costs as costs_module
from offramp.model.executor import LayerExecutor
from offramp.testing.gate import Gate
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import Api, listening, served
from tests.serve.wire import connected


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


@pytest.fixture(scope="module")
def wire_api() -> Iterator[Api]:
    """A server to be spoken to byte by byte."""
    with served(scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=256)) as api:
        yield api


@pytest.fixture(scope="module")
def wire_url(wire_api: Api) -> Iterator[str]:
    with listening(wire_api.app, send_bytes=8192) as url:
        yield url


@pytest.fixture
def connection(wire_url: str) -> Iterator[socket.socket]:
    with closing(connected(wire_url)) as connection:
        yield connection


@pytest.fixture
def quietly(wire_api: Api, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged, and others are served."""
    with caplog.at_level(logging.WARNING):
        yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert wire_api.get("/health").status_code == 200
