"""A model whose answers are written by the test: logits are a given function of the token history and the depth.

It honours the paging contract the hard way: each layer stores a row's token in the row's K/V slot, and the history that
the script sees is read back, after the deepest layer run, through the slots of `Rows`. A wrong page, slot, ancestor or
an unpaid layer therefore shows as a wrong history or an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, HeadId, Hidden, LogitSummary, Top
from offramp.model.heads import HeadWeights, check_head, columns_of
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import LayerWeights
from offramp.testing.toy import toy_config
from offramp.testing.twin import summary_of, top_of
from offramp.testing.views import OUTSIDE, UNWRITTEN, check_range, copy_slot_rows, view_rows

Script = Callable[[tuple[int, ...], int], NDArray[np.float32]]
"""(history up to and including the row's own token, layers run) -> logits [vocab]."""

DEPTH, LENGTH, HISTORY = 0, 1, 2
"""Columns of a scripted hidden state: layers run, tokens in the history, and from column 2 on the tokens."""


class ScriptedModel:
    """`LayerExecutor` that follows a script. After zero layers a row's history is its own token only."""

    def __init__(self, script: Script, *, num_pages: int, num_layers: int = 2, vocab_size: int = 260) -> None:
        longest = num_pages * PAGE_SIZE
        self._config = toy_config(
            num_layers=num_layers, vocab_size=vocab_size, max_context=longest, hidden_size=longest + HISTORY
        )
        self._script = script
        self._num_pages = num_pages
        self._heads: list[Ids | None] = [None]  # the tokens that each head knows
        self._layers = [self._new_layer() for _ in range(num_layers)]

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def num_pages(self) -> int:
        return self._num_pages

    def embed(self, rows: Rows) -> ArrayHidden:
        assert ((rows.tokens >= 0) & (rows.tokens < self._config.vocab_size)).all(), rows.tokens
        h = np.zeros((len(rows), self._config.hidden_size), np.float32)
        h[:, LENGTH] = 1
        h[:, HISTORY] = rows.tokens
        return ArrayHidden(h)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        check_range(start, stop, self._config.num_layers, len(self._layers))
        self._check_rows(h, rows)
        assert start >= self._config.num_layers or (h.numpy()[:, DEPTH] == start).all(), "rows come from another depth"
        view = view_rows(rows, self._num_pages)
        out = h.numpy().copy()
        for layer in range(start, stop):
            tokens, positions = self._layers[layer]
            tokens[view.writes], positions[view.writes] = rows.tokens, rows.positions
            view.check_written(positions, layer)
            out[:, DEPTH] = layer + 1
            out[:, LENGTH] = rows.positions + 1
            out[:, HISTORY:] = 0
            history = out[:, HISTORY : HISTORY + view.reads.shape[1]]
            history[...] = np.where(view.reads == OUTSIDE, 0, tokens[view.reads])
        return ArrayHidden(out)

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        check_range(start, stop, self._config.num_layers, len(self._layers))
        self._check_rows(h, rows)
        view = view_rows(rows, self._num_pages)
        for tokens, positions in self._layers[start:stop]:
            tokens[view.writes], positions[view.writes] = rows.tokens, rows.positions

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        known = self.head_ids(head)
        out = np.zeros((len(h), self._config.vocab_size), np.float32)
        for r, row in enumerate(h.numpy().astype(np.int64)):
            history = tuple(row[HISTORY : HISTORY + row[LENGTH]].tolist())
            out[r] = self._script(history, int(row[DEPTH]))
        out = out if known is None else out[:, known]
        return np.ascontiguousarray(out if vocab_ids is None else out[:, columns_of(known, vocab_ids)])

    def top(self, h: Hidden, k: int, head: HeadId = FINAL) -> Top:
        return top_of(self.logits(h, head), k, self.head_ids(head))

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        return summary_of(self.logits(h, head))

    def copy_slots(self, source: Ids, target: Ids) -> None:
        for arrays in self._layers:
            copy_slot_rows(arrays, source, target)

    def add_head(self, weights: HeadWeights) -> HeadId:
        """A head says what the script says, of the tokens that it knows; its weights play no part."""
        check_head(weights, self._config)
        self._heads.append(weights.vocab_ids)
        return HeadId(len(self._heads) - 1)

    def head_ids(self, head: HeadId) -> Ids | None:
        assert 0 <= head < len(self._heads), f"no head {head}"
        return self._heads[head]

    def add_side_layer(self, weights: LayerWeights) -> int:
        """A side layer stores and reads tokens like any other; its weights play no part."""
        self._layers.append(self._new_layer())
        return len(self._layers) - 1

    def _new_layer(self) -> tuple[Ids, Ids]:
        slots = self._num_pages * PAGE_SIZE
        return np.full(slots, UNWRITTEN, np.int32), np.full(slots, UNWRITTEN, np.int32)

    def _check_rows(self, h: Hidden, rows: Rows) -> None:
        values = h.numpy()
        assert len(h) == len(rows), (len(h), len(rows))
        own = values[np.arange(len(h)), HISTORY - 1 + values[:, LENGTH].astype(np.int64)]
        assert (own == rows.tokens).all(), "hidden states belong to other tokens"


def peak(token: int, vocab_size: int = 260) -> NDArray[np.float32]:
    """Logits whose order is known: `token` first, then token + 1, token + 2, ... around the vocabulary."""
    distance = (np.arange(vocab_size) - token) % vocab_size
    return (10.0 - 0.5 * distance).astype(np.float32)


def follow(*sequences: Sequence[int], vocab_size: int = 260, otherwise: int = 0) -> Script:
    """Argmax continues the first of `sequences` that starts with the history; `otherwise` when none does."""
    known = [tuple(sequence) for sequence in sequences]

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        fitting = (s[len(history)] for s in known if len(s) > len(history) and s[: len(history)] == history)
        return peak(next(fitting, otherwise), vocab_size)

    return script


def mixing(vocab_size: int = 260, first: int = 0) -> Script:
    """Argmax is a hash of the whole history, an id of `first` or above: one wrong token changes all that follows."""

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        state = 2166136261
        for token in history:
            state = ((state ^ token) * 16777619) % 2**32
        return peak(first + (state >> 8) % (vocab_size - first), vocab_size)

    return script
