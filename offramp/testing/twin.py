"""The numpy twin of the native executor: slow, plain, and the same bits (docs/arithmetic.md).

It also polices the paging contract: every K/V slot remembers the logical position written to it, layer by layer, and
attention asserts that it reads only slots that hold the position it expects. An unpaid layer, a wrong page table or a
slot written twice in one call is an AssertionError here, where the native executor would compute nonsense.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, HeadId, LogitSummary, Top
from offramp.model.heads import HeadWeights, check_head, columns_of
from offramp.model.hidden import ArrayHidden
from offramp.model.rope import rope_tables
from offramp.model.tensors import LayerWeights, Matrix, Vector, WeightSource, layer_weights
from offramp.testing import arithmetic
from offramp.testing.arithmetic import F32
from offramp.testing.views import UNWRITTEN, View, check_range, copy_slot_rows, view_rows

KvType = Literal["f16", "f32"]


@dataclass(frozen=True, slots=True, eq=False)
class LayerCache:
    """K/V of one layer by physical slot, and the logical position each slot was written for."""

    keys: NDArray[np.floating]  # [slots, kv_heads, head_dim], f16 or f32
    values: NDArray[np.floating]  # [slots, kv_heads, head_dim]
    positions: Ids  # [slots], UNWRITTEN where nothing was stored


class TwinExecutor:
    """`LayerExecutor` in numpy, for toy models; give it small widths and short contexts."""

    def __init__(self, source: WeightSource, *, kv: KvType = "f16", num_pages: int) -> None:
        assert num_pages > 0
        self._config = source.config
        self._num_pages = num_pages
        self._kv_dtype: type[np.floating] = np.float16 if kv == "f16" else np.float32
        self._embedding = source.matrix("embedding")
        matrix = self._embedding if source.config.tie_embeddings else source.matrix("lm_head")
        self._head_weights = [HeadWeights(norm=source.vector("final_norm"), matrix=matrix)]
        self._layers = [layer_weights(source, i) for i in range(source.config.num_layers)]
        self._caches = [self._new_cache() for _ in self._layers]
        self._tables = {rope: rope_tables(rope, 0, source.config.max_context) for rope in source.config.ropes}

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def num_pages(self) -> int:
        return self._num_pages

    def embed(self, rows: Rows) -> ArrayHidden:
        assert ((rows.tokens >= 0) & (rows.tokens < self._config.vocab_size)).all(), rows.tokens
        values = arithmetic.matrix_rows(self._embedding, rows.tokens)
        return ArrayHidden(values * np.float32(self._config.embedding_scale))

    def run_layers(self, h: ArrayHidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        check_range(start, stop, self._config.num_layers, len(self._layers))
        view = view_rows(rows, self._num_pages)
        x = self._checked(h, rows)
        with np.errstate(all="ignore"):
            for layer in range(start, stop):
                x = self._run_layer(x, rows, view, layer)
        return ArrayHidden(np.ascontiguousarray(x))

    def fill(self, h: ArrayHidden, rows: Rows, start: int, stop: int) -> None:
        check_range(start, stop, self._config.num_layers, len(self._layers))
        view = view_rows(rows, self._num_pages)
        x = self._checked(h, rows)
        with np.errstate(all="ignore"):
            for layer in range(start, stop):
                normed = arithmetic.rms_norm(x, self._layers[layer].attn_norm, self._config.norm_eps)
                self._store(normed, rows, view, layer)

    def logits(self, h: ArrayHidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> F32:
        weights = self._head(head)
        norm, matrix = weights.norm, weights.matrix
        assert norm is not None
        assert matrix is not None
        if vocab_ids is not None:
            matrix = arithmetic.matrix_subset(matrix, columns_of(weights.vocab_ids, vocab_ids))
        with np.errstate(all="ignore"):
            adapted = self._adapted(h.numpy(), weights)
            return arithmetic.matmul(arithmetic.rms_norm(adapted, norm, self._config.norm_eps), matrix)

    def top(self, h: ArrayHidden, k: int, head: HeadId = FINAL) -> Top:
        return top_of(self.logits(h, head), k, self.head_ids(head))

    def summarize(self, h: ArrayHidden, head: HeadId = FINAL) -> LogitSummary:
        return summary_of(self.logits(h, head))

    def copy_slots(self, source: Ids, target: Ids) -> None:
        for cache in self._caches:
            copy_slot_rows((cache.keys, cache.values, cache.positions), source, target)

    def add_head(self, weights: HeadWeights) -> HeadId:
        check_head(weights, self._config)
        own = self._head_weights[FINAL]
        matrix = own.matrix if weights.matrix is None else weights.matrix
        assert matrix is not None
        if weights.matrix is None and weights.vocab_ids is not None:
            matrix = arithmetic.matrix_subset(matrix, weights.vocab_ids)
        norm = own.norm if weights.norm is None else weights.norm
        self._head_weights.append(replace(weights, norm=norm, matrix=matrix))
        return HeadId(len(self._head_weights) - 1)

    def head_ids(self, head: HeadId) -> Ids | None:
        return self._head(head).vocab_ids

    def add_side_layer(self, weights: LayerWeights) -> int:
        self._layers.append(weights)
        self._caches.append(self._new_cache())
        return len(self._layers) - 1

    def _head(self, head: HeadId) -> HeadWeights:
        assert 0 <= head < len(self._head_weights), f"no head {head}"
        return self._head_weights[head]

    def _adapted(self, h: F32, weights: HeadWeights) -> F32:
        """Hidden states as a head's norm takes them."""
        if weights.input_norm is None or weights.down is None or weights.up is None:
            return h
        normed = arithmetic.rms_norm(h, weights.input_norm, self._config.norm_eps)
        return h + arithmetic.matmul(arithmetic.silu(arithmetic.matmul(normed, weights.down)), weights.up)

    def _new_cache(self) -> LayerCache:
        slots = self._num_pages * PAGE_SIZE
        shape = (slots, self._config.num_kv_heads, self._config.head_dim)
        empty = np.full(shape, np.nan, self._kv_dtype)
        return LayerCache(empty, empty.copy(), np.full(slots, UNWRITTEN, np.int32))

    def _checked(self, h: ArrayHidden, rows: Rows) -> F32:
        assert len(h) == len(rows), (len(h), len(rows))
        assert ((rows.positions >= 0) & (rows.positions < self._config.max_context)).all(), rows.positions
        return h.numpy()

    def _run_layer(self, x: F32, rows: Rows, view: View, layer: int) -> F32:
        weights, eps = self._layers[layer], self._config.norm_eps
        normed = arithmetic.rms_norm(x, weights.attn_norm, eps)
        q = self._heads(normed, weights.q, weights.q_bias)
        self._store(normed, rows, view, layer)
        attended = self._attend(self._turned(q, weights.q_norm, rows, layer), rows, view, layer)
        x = x + self._post_normed(arithmetic.matmul(attended, weights.o), weights.post_attn_norm)
        normed = arithmetic.rms_norm(x, weights.mlp_norm, eps)
        gate, up = arithmetic.matmul(normed, weights.gate), arithmetic.matmul(normed, weights.up)
        activate = arithmetic.geglu if self._config.form.activation == "gelu_tanh" else arithmetic.swiglu
        return x + self._post_normed(arithmetic.matmul(activate(gate, up), weights.down), weights.post_mlp_norm)

    def _post_normed(self, y: F32, norm: Vector | None) -> F32:
        return y if norm is None else arithmetic.rms_norm(y, norm, self._config.norm_eps)

    def _heads(self, normed: F32, matrix: Matrix, bias: Vector | None) -> F32:
        """One of q, k and v before its norm and rope, [rows, heads, head_dim]."""
        flat = arithmetic.matmul(normed, matrix)
        flat = flat if bias is None else flat + bias
        return flat.reshape(len(flat), flat.shape[1] // self._config.head_dim, self._config.head_dim)

    def _turned(self, heads: F32, norm: Vector | None, rows: Rows, layer: int) -> F32:
        """q or k as attention takes it: normalized and rotated where the layer does so."""
        if norm is not None:
            flat = heads.reshape(-1, self._config.head_dim)
            heads = arithmetic.rms_norm(flat, norm, self._config.norm_eps).reshape(heads.shape)
        rope = self._config.attention_of(layer).rope
        if rope is None:
            return heads
        cos, sin = self._tables[rope]
        return arithmetic.rope(heads, cos[rows.positions], sin[rows.positions])

    def _store(self, normed: F32, rows: Rows, view: View, layer: int) -> None:
        weights, cache = self._layers[layer], self._caches[layer]
        keys = self._turned(self._heads(normed, weights.k, weights.k_bias), weights.k_norm, rows, layer)
        cache.keys[view.writes] = keys.astype(self._kv_dtype)
        cache.values[view.writes] = self._heads(normed, weights.v, weights.v_bias).astype(self._kv_dtype)
        cache.positions[view.writes] = rows.positions

    def _attend(self, q: F32, rows: Rows, view: View, layer: int) -> F32:
        cache, window = self._caches[layer], self._config.attention_of(layer).window
        view.check_written(cache.positions, layer)
        state = OnlineSoftmax(q, self._config.attention_scale)
        for start in range(0, view.reads.shape[1], PAGE_SIZE):
            slots = view.reads[:, start : start + PAGE_SIZE]
            visible = slots >= 0
            if window is not None:
                visible &= np.arange(start, start + slots.shape[1]) > rows.positions[:, None] - window
            state.add_page(cache.keys[slots], cache.values[slots], visible)
        return state.finish()


class OnlineSoftmax:
    """Attention of some rows over their contexts, page by page: q [rows, heads, head_dim]."""

    def __init__(self, q: F32, scale: float) -> None:
        self._q = q
        self._scale = np.float32(scale)
        self._m = np.full(q.shape[:2], -np.inf, np.float32)  # [rows, heads]
        self._l = np.zeros(q.shape[:2], np.float32)  # [rows, heads]
        self._o = np.zeros(q.shape, np.float32)  # [rows, heads, head_dim]

    def add_page(self, keys: NDArray[np.floating], values: NDArray[np.floating], visible: arithmetic.Mask) -> None:
        """One page of stored K/V [rows, i, kv_heads, head_dim]; rows that see none of it keep their state."""
        k, v = self._per_head(keys), self._per_head(values)
        keep = np.broadcast_to(visible[:, None, :], k.shape[:3])
        scores = arithmetic.sum8(self._q[:, :, None, :] * k) * self._scale  # [rows, heads, i]
        new = self._m
        for i in range(scores.shape[2]):
            new = np.where(keep[:, :, i] & ~(new > scores[:, :, i]), scores[:, :, i], new)
        rescaled = (self._m != -np.inf) & keep.any(axis=2)
        a = arithmetic.exp(self._m - new)
        total = np.where(rescaled, self._l * a, self._l)
        out = np.where(rescaled[:, :, None], self._o * a[:, :, None], self._o)
        e = arithmetic.exp(scores - new[:, :, None])
        self._l = np.where(keep.any(axis=2), total + arithmetic.sum8(e, keep), total)
        for i in range(scores.shape[2]):
            out = np.where(keep[:, :, i, None], out + e[:, :, i, None] * v[:, :, i], out)
        self._m, self._o = new, out

    def finish(self) -> F32:
        """The attention outputs, [rows, heads * head_dim]."""
        out = self._o * (np.float32(1) / self._l)[:, :, None]
        return out.reshape(out.shape[0], out.shape[1] * out.shape[2])

    def _per_head(self, stored: NDArray[np.floating]) -> F32:
        """[rows, i, kv_heads, head_dim] as stored -> f32 [rows, heads, i, head_dim], shared within a group."""
        group = self._q.shape[1] // stored.shape[2]
        return np.repeat(stored.astype(np.float32).transpose(0, 2, 1, 3), group, axis=1)


def top_of(logits: F32, k: int, known: Ids | None = None) -> Top:
    """The k largest of every row, ties to the lowest id, NaN last; and the rows' log-sum-exp. `known` names columns."""
    assert 1 <= k <= logits.shape[1], (k, logits.shape)
    ids = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    order = np.lexsort((ids, -logits, np.isnan(logits)), axis=1)[:, :k]
    with np.errstate(all="ignore"):
        total = arithmetic.log_sum_exp(logits)
    best = order.astype(np.int32)
    return Top(best if known is None else known[best], np.take_along_axis(logits, order, axis=1), total)


def summary_of(logits: F32) -> LogitSummary:
    """Of given logits, [rows, n]."""
    with np.errstate(all="ignore"):
        return arithmetic.summarize(logits)
