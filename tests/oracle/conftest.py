"""The recorded reference answers, and the executors they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.model.executor import LayerExecutor
from offramp.model.tensors import WeightSource
from offramp.native import build_executor, kernel_paths
from offramp.testing.twin import TwinExecutor

RECORDED = Path(__file__).parent / "recorded"
Recording = dict[str, NDArray[Any]]
BuildF32 = Callable[[WeightSource, int], LayerExecutor]
"""(source, num_pages) -> an executor with f32 K/V."""


@pytest.fixture(scope="session")
def recording() -> Callable[[str], Recording]:
    """Arrays of one recording by name."""

    def load(name: str) -> Recording:
        with np.load(RECORDED / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(params=["twin", *kernel_paths()])
def build_f32(request: pytest.FixtureRequest) -> BuildF32:
    path = request.param

    def build(source: WeightSource, num_pages: int) -> LayerExecutor:
        if path == "twin":
            return TwinExecutor(source, kv="f32", num_pages=num_pages)
        return build_executor(source, kv="f32", num_pages=num_pages, threads=2, path=path)

    return build
