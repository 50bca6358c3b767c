"""Types of the C++ extension (csrc/module.cpp)."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

F32: int
Q8: int
Q4: int
LANES: int
MAX_GROUP: int
SUFFIX_GRADES: list[tuple[int, int, float]]

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
def gather_outputs(matrix: _Matrix, outputs: NDArray[np.int32], target: NDArray[np.uint8], /) -> None: ...
def summarize(
    logits: NDArray[np.float32], best: NDArray[np.int32], scores: NDArray[np.float32], /, path: str
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

class SuffixReader:
    @property
    def match_len(self) -> int: ...
    def advance(self, ids: NDArray[np.int32], /) -> None: ...

class SuffixAutomaton:
    def __init__(self, max_bytes: int, max_walk: int) -> None: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    def extend(self, ids: NDArray[np.int32], /) -> int: ...
    def begin_text(self) -> None: ...
    def count(self, ids: NDArray[np.int32], /) -> int: ...
    def reader(self) -> SuffixReader: ...
    def repeated(self) -> SuffixReader: ...

def suffix_grade(order: int, context_len: int, share: float) -> int: ...
def suffix_grow(
    readers: list[SuffixReader],
    worths: list[NDArray[np.float32]],
    max_nodes: int,
    max_depth: int,
    min_score: float,
) -> tuple[list[int], list[int], list[int], list[int]]: ...

class _Matrix(Protocol):
    @property
    def tiles(self) -> NDArray[np.uint8]: ...
    @property
    def format(self) -> int: ...
    @property
    def out_features(self) -> int: ...
    @property
    def in_features(self) -> int: ...

class _Layer(Protocol):
    @property
    def attn_norm(self) -> NDArray[np.float32]: ...
    @property
    def q(self) -> _Matrix: ...
    @property
    def k(self) -> _Matrix: ...
    @property
    def v(self) -> _Matrix: ...
    @property
    def o(self) -> _Matrix: ...
    @property
    def mlp_norm(self) -> NDArray[np.float32]: ...
    @property
    def gate(self) -> _Matrix: ...
    @property
    def up(self) -> _Matrix: ...
    @property
    def down(self) -> _Matrix: ...
    @property
    def q_bias(self) -> NDArray[np.float32] | None: ...
    @property
    def k_bias(self) -> NDArray[np.float32] | None: ...
    @property
    def v_bias(self) -> NDArray[np.float32] | None: ...
    @property
    def q_norm(self) -> NDArray[np.float32] | None: ...
    @property
    def k_norm(self) -> NDArray[np.float32] | None: ...
    @property
    def post_attn_norm(self) -> NDArray[np.float32] | None: ...
    @property
    def post_mlp_norm(self) -> NDArray[np.float32] | None: ...

class RowArrays:
    def __init__(
        self,
        *,
        tokens: NDArray[np.int32],
        sequence: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int32],
        prefix_lens: NDArray[np.int32],
        ancestor_slots: NDArray[np.int32],
        ancestor_starts: NDArray[np.int32],
        page_ids: NDArray[np.int32],
        page_starts: NDArray[np.int32],
    ) -> None: ...

class Executor:
    def __init__(
        self,
        *,
        hidden: int,
        intermediate: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        vocab: int,
        norm_eps: float,
        embedding_scale: float,
        attention_scale: float,
        gelu: bool,
        layers: int,
        kv_f16: bool,
        num_pages: int,
        threads: int,
        path: str,
    ) -> None: ...
    @property
    def kernel_name(self) -> str: ...
    def use_threads(self, threads: int, /) -> None: ...
    def set_embedding(self, embedding: _Matrix, /) -> None: ...
    def set_head(self, head: _Matrix, norm: NDArray[np.float32], /) -> None: ...
    def add_head(
        self,
        *,
        matrix: _Matrix,
        norm: NDArray[np.float32],
        input_norm: NDArray[np.float32] | None,
        down: _Matrix | None,
        up: _Matrix | None,
    ) -> int: ...
    def add_layer(self, layer: _Layer, rope: int, window: int, /) -> None: ...
    def set_rope(self, index: int, cosines: NDArray[np.float32], sines: NDArray[np.float32], /) -> None: ...
    def embed(self, rows: RowArrays, h: NDArray[np.float32], /) -> None: ...
    def run_layers(self, h: NDArray[np.float32], rows: RowArrays, start: int, stop: int, /) -> None: ...
    def fill(self, h: NDArray[np.float32], rows: RowArrays, start: int, stop: int, /) -> None: ...
    def logits(self, h: NDArray[np.float32], out: NDArray[np.float32], head: int = 0) -> None: ...
    def logits_subset(
        self, h: NDArray[np.float32], ids: NDArray[np.int32], out: NDArray[np.float32], head: int = 0
    ) -> None: ...
    def summarize(
        self,
        h: NDArray[np.float32],
        logits: NDArray[np.float32],
        best: NDArray[np.int32],
        scores: NDArray[np.float32],
        head: int = 0,
    ) -> None: ...
    def top(
        self,
        h: NDArray[np.float32],
        ids: NDArray[np.int32],
        logits: NDArray[np.float32],
        log_sum_exp: NDArray[np.float32],
        head: int = 0,
    ) -> None: ...
    def add_join(self, matrix: _Matrix, norm: NDArray[np.float32], /) -> int: ...
    def run_joined(
        self,
        join: int,
        rows: RowArrays,
        states: NDArray[np.float32],
        chosen: NDArray[np.int32],
        h: NDArray[np.float32],
        head: int,
        num_guesses: int,
        known: NDArray[np.int32],
        /,
    ) -> list[list[tuple[int, float]]]: ...
    def copy_slots(self, source: NDArray[np.int32], target: NDArray[np.int32], /) -> None: ...
