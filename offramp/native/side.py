"""The executor of a side layer: what comes before the layer, the layer and a head in one call of the extension."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.model.executor import HeadId, Top
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import Matrix, Vector
from offramp.native.executor import NativeExecutor
from offramp.native.kv import KvType
from offramp.native.large_pages import moved_to_large_pages
from offramp.native.packed import PackedMatrix, PackedWeights, pack
from offramp.native.thread_choice import ThreadChoice


class NativeSideExecutor(NativeExecutor):
    """Implements `SideExecutor` (offramp/draft/side_model.py). Each way to join has its own number of threads."""

    def __init__(self, weights: PackedWeights, *, kv: KvType, num_pages: int, threads: int, path: str) -> None:
        super().__init__(weights, kv=kv, num_pages=num_pages, threads=threads, path=path)
        self._joins: list[tuple[PackedMatrix, Vector, ThreadChoice]] = []  # kept alive

    def add_join(self, matrix: Matrix, norm: Vector) -> int:
        packed, weights = pack(matrix), np.ascontiguousarray(norm, dtype=np.float32)
        packed = replace(packed, tiles=moved_to_large_pages(packed.tiles))
        self._joins.append((packed, weights, ThreadChoice(self.threads)))
        return self._native.add_join(packed, weights)

    def run_joined(
        self, join: int, rows: Rows, states: NDArray[np.float32], chosen: Ids, head: HeadId, num_top: int
    ) -> tuple[ArrayHidden, Top | None]:
        count, arrays, (_, _, threads) = len(chosen), self._arrays(rows), self._joins[join]
        h = np.empty((count, self.config.hidden_size), dtype=np.float32)
        ids = np.empty((count, num_top), dtype=np.int32)
        logits = np.empty((count, num_top), dtype=np.float32)
        log_sum_exp = np.empty(count, dtype=np.float32)
        self._native.use_threads(threads.choose(len(rows)))
        begin = perf_counter()
        self._native.run_joined(join, arrays, states.reshape(len(rows), -1), chosen, h, head, ids, logits, log_sum_exp)
        if count:
            threads.observe(len(rows), perf_counter() - begin)
        if not num_top:
            return ArrayHidden(h), None
        known = self.head_ids(head)
        return ArrayHidden(h), Top(ids if known is None else known[ids], logits, log_sum_exp)
