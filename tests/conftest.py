"""Fixtures shared by all tests. Toy models and executors are cheap: build them where they are used."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
