"""One matrix on its own: RMSNorm of each row, then the product, as a head does it."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from offramp.model.tensors import Matrix, Vector
from offramp.native import _native
from offramp.native.large_pages import moved_to_large_pages
from offramp.native.packed import pack
from offramp.native.thread_choice import ThreadChoice


class NativeProduct:
    """Rows [rows, in] -> [rows, out]. Not thread-safe."""

    def __init__(self, matrix: Matrix, norm: Vector, *, epsilon: float, threads: int, path: str) -> None:
        packed = pack(matrix)
        self._matrix = replace(packed, tiles=moved_to_large_pages(packed.tiles))  # kept alive, as the norm is
        self._norm = np.ascontiguousarray(norm, dtype=np.float32)
        self._native = _native.Executor(
            hidden=packed.in_features,
            intermediate=1,
            heads=1,
            kv_heads=1,
            head_dim=1,
            vocab=packed.out_features,
            norm_eps=epsilon,
            embedding_scale=1.0,
            attention_scale=1.0,
            gelu=False,
            layers=1,
            kv_f16=True,
            num_pages=1,
            threads=threads,
            path=path,
        )
        self._native.set_head(self._matrix, self._norm)
        self._choice = ThreadChoice(threads)

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        out = np.empty((len(rows), self._matrix.out_features), dtype=np.float32)
        self._native.use_threads(self._choice.choose(len(rows)))
        begin = perf_counter()
        self._native.logits(rows, out, 0)
        self._choice.observe(len(rows), perf_counter() - begin)
        return out
