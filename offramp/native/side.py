"""The executor of a side layer: what comes before the layer, the layer and a head in one call of the extension."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.model.executor import HeadId
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
        self._all_ids = np.arange(weights.config.vocab_size, dtype=np.int32)

    def add_join(self, matrix: Matrix, norm: Vector) -> int:
        packed, weights = pack(matrix), np.ascontiguousarray(norm, dtype=np.float32)
        packed = replace(packed, tiles=moved_to_large_pages(packed.tiles))
        self._joins.append((packed, weights, ThreadChoice(self.threads)))
        return self._native.add_join(packed, weights)

    def run_joined(
        self, join: int, rows: Rows, states: NDArray[np.float32], chosen: Ids, head: HeadId, num_guesses: int
    ) -> tuple[ArrayHidden, list[list[tuple[int, float]]]]:
        arrays, (_, _, threads), known = self._arrays(rows), self._joins[join], self.head_ids(head)
        h = np.empty((len(chosen), self.config.hidden_size), dtype=np.float32)
        flat = states.reshape(len(rows), -1)
        self._native.use_threads(threads.choose(len(rows)))
        begin = perf_counter()
        guesses = self._native.run_joined(
            join, arrays, flat, chosen, h, head, num_guesses, self._all_ids if known is None else known
        )
        if len(chosen):
            threads.observe(len(rows), perf_counter() - begin)
        return ArrayHidden(h), guesses
