"""A seeded random walk over every operation of an executor; two executors agree when all its outputs have equal bits.

The walk never looks at what it computes, so the same seed drives any executor through the same calls: ragged chunks in
shuffled row order, split layer ranges, trees whose accepted branch is copied down, state propagation, a side layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.core import PAGE_SIZE
from offramp.model.executor import LayerExecutor
from offramp.model.tensors import LayerWeights
from offramp.testing.batches import Row, chain, pack_rows, physical_slots, tree

NUM_SEQS = 3
PAGES_PER_SEQ = 3
PROGRAM_PAGES = NUM_SEQS * PAGES_PER_SEQ
MAX_TREE = 9
MAX_CHUNK = 14

Outputs = list[NDArray[Any]]


class Program:
    """One walk: call `run` once. Needs an executor with at least PROGRAM_PAGES pages."""

    def __init__(self, executor: LayerExecutor, side: LayerWeights, seed: int) -> None:
        self._executor = executor
        self._rng = np.random.default_rng(seed)
        self._side_layer = executor.add_side_layer(side)
        self._lengths = [0] * NUM_SEQS
        shuffled = self._rng.permutation(executor.num_pages)[:PROGRAM_PAGES]
        self._pages = shuffled.reshape(NUM_SEQS, PAGES_PER_SEQ).tolist()
        self._outputs: Outputs = []

    def run(self, num_steps: int) -> Outputs:
        """All outputs of `num_steps` random operations, in order."""
        operations = [self._step_chunks, self._step_chunks, self._step_tree, self._step_fill]
        for _ in range(num_steps):
            operations[self._rng.integers(len(operations))]()
        return self._outputs

    def _step_chunks(self) -> None:
        self._full_depth(self._chunks())

    def _step_fill(self) -> None:
        """Rows leave after some layers and their deeper K/V are propagated."""
        rows, executor = pack_rows(self._chunks(), self._pages), self._executor
        depth = int(self._rng.integers(executor.config.num_layers))
        h = executor.run_layers(executor.embed(rows), rows, 0, depth)
        executor.fill(h, rows, depth, executor.config.num_layers)
        executor.fill(h, rows, self._side_layer, self._side_layer + 1)
        self._outputs.append(h.numpy())

    def _step_tree(self) -> None:
        """Draft trees on some sequences; a random branch of each is accepted and moved to the committed slots."""
        rows: list[Row] = []
        copied: list[int] = []
        landed: list[int] = []
        deepest = [0] * NUM_SEQS
        for s in range(NUM_SEQS):
            room = PAGES_PER_SEQ * PAGE_SIZE - self._lengths[s]
            size = int(self._rng.integers(0, min(MAX_TREE, room) + 1))
            parents = [int(self._rng.integers(-1, i)) for i in range(size)]
            nodes = tree(self._tokens(size), parents, sequence=s, start=self._lengths[s])
            rows += nodes
            if nodes:
                leaf = nodes[self._rng.integers(size)]
                branch = [*leaf.ancestors, leaf.slot]
                landing = range(leaf.prefix_len, leaf.prefix_len + len(branch))
                copied += physical_slots(self._pages[s], branch).tolist()
                landed += physical_slots(self._pages[s], landing).tolist()
                deepest[s] = len(branch)
        self._full_depth(rows)
        self._executor.copy_slots(np.array(copied, np.int32), np.array(landed, np.int32))
        self._lengths = [length + depth for length, depth in zip(self._lengths, deepest, strict=True)]

    def _chunks(self) -> list[Row]:
        rows: list[Row] = []
        for s in range(NUM_SEQS):
            room = PAGES_PER_SEQ * PAGE_SIZE - self._lengths[s]
            size = int(self._rng.integers(0, min(MAX_CHUNK, room) + 1))
            rows += chain(self._tokens(size), sequence=s, start=self._lengths[s])
            self._lengths[s] += size
        order = self._rng.permutation(len(rows)) if self._rng.random() < 0.5 else np.arange(len(rows))
        return [rows[i] for i in order]

    def _full_depth(self, batch: list[Row]) -> None:
        rows, executor, rng = pack_rows(batch, self._pages), self._executor, self._rng
        layers, vocab = executor.config.num_layers, executor.config.vocab_size
        cut = int(rng.integers(layers + 1))
        middle = executor.run_layers(executor.embed(rows), rows, 0, cut)
        side = executor.run_layers(middle, rows, self._side_layer, self._side_layer + 1)
        deep = executor.run_layers(middle, rows, cut, layers)
        picked = np.flatnonzero(rng.random(len(rows)) < 0.5).astype(np.int32)
        some = deep.take(picked).concat([side.take(picked[:2])])
        top = executor.top(some, 5)
        subset = rng.integers(vocab, size=11).astype(np.int32)
        self._outputs += [middle.numpy(), side.numpy(), deep.numpy()]
        self._outputs += [executor.logits(some), executor.logits(some, vocab_ids=subset)]
        self._outputs += [top.ids, top.logits, top.log_sum_exp]

    def _tokens(self, count: int) -> list[int]:
        return [int(token) for token in self._rng.integers(self._executor.config.vocab_size, size=count)]


def same_bits(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Equal shape, type and bits; any NaN equals any other NaN, as payloads are not part of the arithmetic."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype != np.float32:
        return bool((left == right).all())
    bits_differ = left.view(np.int32) != right.view(np.int32)
    return not (bits_differ & ~(np.isnan(left) & np.isnan(right))).any()
