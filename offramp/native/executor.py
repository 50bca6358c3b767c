"""`LayerExecutor` over the C++ kernels: keeps the arrays alive, grows the rope tables, checks what callers hand in."""

from __future__ import annotations

import logging
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Rows
from offramp.errors import InvalidRequestError, UnsupportedModelError
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, SCORES, HeadId, Hidden, LogitSummary, Top
from offramp.model.heads import HeadWeights, columns_of
from offramp.model.hidden import ArrayHidden
from offramp.model.rope import rope_tables
from offramp.model.tensors import LayerWeights, WeightSource
from offramp.native import _native
from offramp.native.heads import PackedHeads
from offramp.native.kv import KvType, kv_type
from offramp.native.packed import PackedInMemory, PackedLayer, PackedMatrix, PackedWeights, pack_layer, packed_layer
from offramp.native.thread_choice import ThreadChoice
from offramp.native.threads import check_threads, default_threads

log = logging.getLogger("offramp")

ROPE_STEP = 1024  # positions added to the rope tables at a time


class NativeExecutor:
    """Runs layer ranges on the CPU. Not thread-safe: one engine thread drives it."""

    def __init__(self, weights: PackedWeights, *, kv: KvType, num_pages: int, threads: int, path: str) -> None:
        """Takes the weights by reference; K/V memory for `num_pages` pages is committed as pages are first used."""
        self._config = config = weights.config
        _check_group(config)
        self._num_pages = num_pages
        self._kv: KvType = kv
        self._threads = threads
        self._choice = ThreadChoice(threads)
        self._native = _native.Executor(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            vocab=config.vocab_size,
            norm_eps=config.norm_eps,
            embedding_scale=config.embedding_scale,
            attention_scale=config.attention_scale,
            gelu=config.form.activation == "gelu_tanh",
            layers=config.num_layers,
            kv_f16=kv == "f16",
            num_pages=num_pages,
            threads=threads,
            path=path,
        )
        embedding = weights.matrix("embedding")
        head = embedding if config.tie_embeddings else weights.matrix("lm_head")
        norm = weights.vector("final_norm")
        self._native.set_embedding(embedding)
        self._native.set_head(head, norm)
        self._ropes = config.ropes
        self._layers: list[PackedLayer] = []
        for index in range(config.num_layers):
            self._add_layer(packed_layer(weights, index))
        self._embedding = embedding  # kept alive; the heads keep theirs
        self._heads = PackedHeads(config, head, norm)
        self._tables: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        self._rows: Rows | None = None
        self._row_arrays: _native.RowArrays | None = None

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def kv(self) -> KvType:
        return self._kv

    @property
    def threads(self) -> int:
        """The most threads that a call uses; small steps use fewer where that is faster."""
        return self._threads

    @property
    def path(self) -> str:
        """Which kernels run, one of `kernel_paths()`."""
        return str(self._native.kernel_name)

    @property
    def shared(self) -> tuple[PackedMatrix, PackedMatrix]:
        """Embedding and head as they are packed, for an executor beside this one."""
        return self._embedding, self._heads.own_matrix

    def embed(self, rows: Rows) -> ArrayHidden:
        h = np.empty((len(rows), self._config.hidden_size), dtype=np.float32)
        self._native.embed(self._arrays(rows), h)
        return ArrayHidden(h)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        values = h.numpy().copy()
        arrays = self._arrays(rows)
        self._set_threads(len(rows))
        begin = perf_counter()
        self._native.run_layers(values, arrays, start, stop)
        if stop > start:
            self._choice.observe(len(rows), (perf_counter() - begin) / (stop - start))
        return ArrayHidden(values)

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        self._set_threads(len(rows))
        self._native.fill(h.numpy(), self._arrays(rows), start, stop)

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        width = self._heads.num_tokens(head) if vocab_ids is None else len(vocab_ids)
        out = np.empty((len(h), width), dtype=np.float32)
        self._set_threads(len(h))
        if vocab_ids is None:
            self._native.logits(h.numpy(), out, head)
        else:
            columns = columns_of(self._heads.ids(head), vocab_ids)
            self._native.logits_subset(h.numpy(), np.ascontiguousarray(columns, dtype=np.int32), out, head)
        return out

    def top(self, h: Hidden, k: int, head: HeadId = FINAL) -> Top:
        ids = np.empty((len(h), k), dtype=np.int32)
        logits = np.empty((len(h), k), dtype=np.float32)
        log_sum_exp = np.empty(len(h), dtype=np.float32)
        self._set_threads(len(h))
        self._native.top(h.numpy(), ids, logits, log_sum_exp, head)
        known = self._heads.ids(head)
        return Top(ids if known is None else known[ids], logits, log_sum_exp)

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        count = len(h)
        logits = np.empty((count, self._heads.num_tokens(head)), dtype=np.float32)
        best = np.empty(count, dtype=np.int32)
        scores = np.empty((count, SCORES), dtype=np.float32)
        self._set_threads(count)
        self._native.summarize(h.numpy(), logits, best, scores, head)
        return LogitSummary(logits, best, scores)

    def copy_slots(self, source: Ids, target: Ids) -> None:
        self._native.copy_slots(
            np.ascontiguousarray(source, dtype=np.int32), np.ascontiguousarray(target, dtype=np.int32)
        )

    def add_head(self, weights: HeadWeights) -> HeadId:
        head = self._heads.pack(weights)
        number = self._native.add_head(
            matrix=head.matrix, norm=head.norm, input_norm=head.input_norm, down=head.down, up=head.up
        )
        return self._heads.keep(head, HeadId(number))

    def head_ids(self, head: HeadId) -> Ids | None:
        return self._heads.ids(head)

    def add_side_layer(self, weights: LayerWeights) -> int:
        self._add_layer(pack_layer(weights, self._config.form))
        return len(self._layers) - 1

    def _set_threads(self, num_rows: int) -> None:
        """For the next call only: each call of the extension that uses threads sets its own number first."""
        self._native.use_threads(self._choice.choose(num_rows))

    def _add_layer(self, layer: PackedLayer) -> None:
        attention = self._config.attention_of(len(self._layers))
        rope = -1 if attention.rope is None else self._ropes.index(attention.rope)
        self._native.add_layer(layer, rope, attention.window or 0)
        self._layers.append(layer)

    def _arrays(self, rows: Rows) -> _native.RowArrays:
        """The extension's view of `rows`; the last one is kept because one step asks several times."""
        if rows is not self._rows or self._row_arrays is None:
            self._grow_rope(max(rows.positions.tolist(), default=0) + 1)  # most calls have few rows: faster than numpy
            self._row_arrays = _native.RowArrays(
                tokens=rows.tokens,
                sequence=rows.sequence,
                positions=rows.positions,
                slots=rows.slots,
                prefix_lens=rows.prefix_lens,
                ancestor_slots=rows.ancestor_slots,
                ancestor_starts=rows.ancestor_starts,
                page_ids=rows.page_ids,
                page_starts=rows.page_starts,
            )
            self._rows = rows
        return self._row_arrays

    def _grow_rope(self, positions: int) -> None:
        have = len(self._tables[0][0]) if self._tables else 0
        if positions <= have:
            return
        want = -(-max(positions, 2 * have) // ROPE_STEP) * ROPE_STEP
        self._tables = [rope_tables(rope, 0, want) for rope in self._ropes]
        for index, table in enumerate(self._tables):
            self._native.set_rope(index, *table)


def build_executor(
    source: WeightSource,
    *,
    kv: str = "f16",
    num_pages: int,
    threads: int | None = None,
    path: str | None = None,
) -> NativeExecutor:
    """Pack `source` in memory and build an executor over it.

    `kv` is f16 or f32, `path` one of `kernel_paths()` (default: the fastest), `threads` defaults to what
    affinity and cgroup leave to the process.
    """
    return executor_over(PackedInMemory(source), kv=kv, num_pages=num_pages, threads=threads, path=path)


def executor_over(
    weights: PackedWeights,
    *,
    kv: str = "f16",
    num_pages: int,
    threads: int | None = None,
    path: str | None = None,
) -> NativeExecutor:
    """As `build_executor`, over weights that are packed already."""
    return NativeExecutor(
        weights,
        kv=kv_type(kv),
        num_pages=num_pages,
        threads=_thread_count(threads),
        path=_kernel_path(path),
    )


def _check_group(config: ModelConfig) -> None:
    group = config.num_heads // config.num_kv_heads
    if group > _native.MAX_GROUP:
        raise UnsupportedModelError(
            f"{group} query heads share a K/V head", hint=f"the CPU executor takes up to {_native.MAX_GROUP}"
        )


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return default_threads()
    check_threads(threads)
    if threads > default_threads():
        log.warning("%d threads on %d usable cores: steps will be slower than with fewer", threads, default_threads())
    return threads


def _kernel_path(path: str | None) -> str:
    paths = kernel_paths()
    if path is None:
        return paths[-1]
    if path not in paths:
        raise InvalidRequestError(
            f"path={path!r} is not a kernel path of this processor", hint=f"path takes {', '.join(paths)}", param="path"
        )
    return path


def kernel_paths() -> tuple[str, ...]:
    """The kernel paths that this processor can run, fastest last: `portable`, `avx2`, `avx512`. All give equal bits."""
    return tuple(_native.kernel_paths())
