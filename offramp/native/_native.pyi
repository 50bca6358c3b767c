"""Types of the C++ extension (csrc/module.cpp)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32: int
Q8: int
Q4: int

def kernel_paths() -> list[str]: ...
def packed_bytes(fmt: int, out: int, inner: int, /) -> int: ...
def pack_f32(values: NDArray[np.float32], target: NDArray[np.uint8], /) -> None: ...
def pack_q8(quants: NDArray[np.int8], scales: NDArray[np.uint16], target: NDArray[np.uint8], /) -> None: ...
def pack_q4(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint16],
    minimums: NDArray[np.uint16],
    target: NDArray[np.uint8],
    /,
) -> None: ...
def draw_token(
    row: NDArray[np.float32],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    choice: int,
    position: int,
    portable: bool,
) -> int: ...

class RowArrays:
    def __init__(self, *arrays: NDArray[np.int32]) -> None: ...

class Executor:
    def __init__(
        self,
        *,
        hidden: int,
        intermediate: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotary_dim: int,
        vocab: int,
        norm_eps: float,
        kv_f16: bool,
        num_pages: int,
        threads: int,
        path: str,
    ) -> None: ...
    @property
    def kernel_name(self) -> str: ...
    def set_embedding(self, embedding: Any, /) -> None: ...
    def set_head(self, head: Any, norm: NDArray[np.float32], /) -> None: ...
    def add_layer(self, layer: Any, /) -> None: ...
    def set_rope(self, cosines: NDArray[np.float32], sines: NDArray[np.float32], /) -> None: ...
    def embed(self, rows: RowArrays, h: NDArray[np.float32], /) -> None: ...
    def run_layers(self, h: NDArray[np.float32], rows: RowArrays, start: int, stop: int, /) -> None: ...
    def fill(self, h: NDArray[np.float32], rows: RowArrays, start: int, stop: int, /) -> None: ...
    def logits(self, h: NDArray[np.float32], out: NDArray[np.float32], /) -> None: ...
    def logits_subset(self, h: NDArray[np.float32], ids: NDArray[np.int32], out: NDArray[np.float32], /) -> None: ...
    def top(
        self,
        h: NDArray[np.float32],
        ids: NDArray[np.int32],
        logits: NDArray[np.float32],
        log_sum_exp: NDArray[np.float32],
        /,
    ) -> None: ...
    def copy_slots(self, source: NDArray[np.int32], target: NDArray[np.int32], limit: int, /) -> None: ...
