"""Executors under one name each, so that one test runs on the twin and on every native path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from offramp.model.executor import LayerExecutor
from offramp.model.tensors import WeightSource
from offramp.native import build_executor, kernel_paths
from offramp.testing.twin import TwinExecutor

KvType = Literal["f16", "f32"]
Build = Callable[[WeightSource, KvType, int], LayerExecutor]
"""(source, kv, num_pages) -> executor."""


@pytest.fixture(params=["twin", *kernel_paths()])
def build(request: pytest.FixtureRequest) -> Build:
    path = request.param

    def make(source: WeightSource, kv: KvType, num_pages: int) -> LayerExecutor:
        if path == "twin":
            return TwinExecutor(source, kv=kv, num_pages=num_pages)
        return build_executor(source, kv=kv, num_pages=num_pages, threads=2, path=path)

    return make
