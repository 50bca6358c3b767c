"""Fixtures shared by all tests. Toy models and executors are cheap: build them where they are used."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import ModelNotFoundError
from offramp.model.sources import locate, resolve


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
