"""A model for the front door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import LLM


@pytest.fixture
def toy_llm(toy_path: Path, own_cache: Path) -> Iterator[LLM]:
    with LLM(str(toy_path), threads=1) as llm:
        yield llm
