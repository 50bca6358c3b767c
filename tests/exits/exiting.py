"""Engines and requests whose rows may leave early, for the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from offramp.core import FULL_DEPTH, ExitParams, Ids, Request, Rows, SamplingParams, SequenceKey
from offramp.engine.engine import Engine
from offramp.engine.exit_points import ExitBatching
from offramp.errors import OfframpError
from offramp.exits.policy import ExitPolicy, ExitRows, Fill
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, HeadId, Hidden, LayerExecutor, LogitSummary, Top
from offramp.model.heads import HeadWeights
from offramp.model.tensors import LayerWeights
from offramp.native import build_executor
from offramp.sample.sampler import RowJob, sample_rows_numpy
from offramp.testing.exits import Choose, ScriptedExits
from offramp.testing.running import Told, run
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor
from offramp.verify.exact import SampleRows

NUM_LAYERS = 5
CONTEXT = 96
VOCAB = 260
TOY = toy_source(
    toy_config(num_layers=NUM_LAYERS, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1),
    seed=7,
    weights="q8",
)
EARLY = ExitParams(policy="early")


def twin(num_pages: int = 12) -> TwinExecutor:
    return TwinExecutor(TOY, num_pages=num_pages)


def native(num_pages: int = 12) -> LayerExecutor:
    return build_executor(TOY, num_pages=num_pages, threads=1)


def forced(logits: NDArray[np.float32], jobs: Sequence[RowJob]) -> list[int | OfframpError]:
    """The token depends on the place only, not on the logits."""
    return [random.Random(f"{job.seed} {job.choice} {job.position}").randrange(VOCAB) for job in jobs]


def coin(share: float, salt: int = 0) -> Choose:
    """Leaves with this chance, by a draw that depends on sequence, output token and layer alone."""
    return lambda key, output, layer: random.Random(f"{salt} {key} {output} {layer}").random() < share


class SureExits(ScriptedExits):
    """Leaves where the row's best logit is ahead by a margin: a decision by values, as real policies make it."""

    def __init__(
        self,
        layers: tuple[int, ...],
        margin: float,
        *,
        fill: Fill = "deferred",
        head: HeadId = FINAL,
        previous: bool = False,
    ) -> None:
        super().__init__(layers, lambda key, output, layer: False, fill=fill, head=head, wants_previous=previous)
        self._margin = margin

    def decide(self, rows: ExitRows) -> NDArray[np.bool_]:
        super().decide(rows)
        logits = np.sort(rows.summary(list(range(len(rows)))).logits, axis=1)
        sure: NDArray[np.bool_] = logits[:, -1] - logits[:, -2] > self._margin
        if rows.previous is not None:
            sure &= np.abs(rows.hidden.numpy() - rows.previous.numpy()).max(axis=1) < 6
        return sure


class Recorder:
    """An executor that writes down which layers ran for how many rows, and the rows that went through each head."""

    def __init__(self, executor: LayerExecutor) -> None:
        self.ranges: list[tuple[int, int, int]] = []  # start, stop, rows
        self.fills: list[tuple[int, int, int]] = []  # start, stop, rows
        self.heads: list[tuple[HeadId, int]] = []  # head, rows
        self._executor = executor

    @property
    def config(self) -> ModelConfig:
        return self._executor.config

    @property
    def num_pages(self) -> int:
        return self._executor.num_pages

    def embed(self, rows: Rows) -> Hidden:
        return self._executor.embed(rows)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        self.ranges.append((start, stop, len(rows)))
        return self._executor.run_layers(h, rows, start, stop)

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        self.fills.append((start, stop, len(rows)))
        self._executor.fill(h, rows, start, stop)

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        self.heads.append((head, len(h)))
        return self._executor.logits(h, head, vocab_ids)

    def top(self, h: Hidden, k: int, head: HeadId = FINAL) -> Top:
        self.heads.append((head, len(h)))
        return self._executor.top(h, k, head)

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        self.heads.append((head, len(h)))
        return self._executor.summarize(h, head)

    def copy_slots(self, source: Ids, target: Ids) -> None:
        self._executor.copy_slots(source, target)

    def add_head(self, weights: HeadWeights) -> HeadId:
        return self._executor.add_head(weights)

    def head_ids(self, head: HeadId) -> Ids | None:
        return self._executor.head_ids(head)

    def add_side_layer(self, weights: LayerWeights) -> int:
        return self._executor.add_side_layer(weights)


def requests(count: int = 3, max_tokens: int = 16, exits: ExitParams = EARLY) -> list[Request]:
    """Greedy ones, of prompts with 3, 20, 37, ... tokens."""
    return [
        Request(
            request_id=f"r{i}",
            prompt_token_ids=[(7 * i + j) % VOCAB for j in range(3 + 17 * i)],
            params=SamplingParams(temperature=0, max_tokens=max_tokens, logprobs=3),
            seed=i,
            exits=exits,
        )
        for i in range(count)
    ]


def at_full_depth(asked: Sequence[Request]) -> list[Request]:
    return [replace(request, exits=FULL_DEPTH) for request in asked]


def engine_with(
    policies: ExitPolicy | Mapping[str, ExitPolicy] | None,
    executor: LayerExecutor | None = None,
    *,
    batching: ExitBatching = "compact",
    max_pending: int = 4,
    max_num_seqs: int = 16,
    budget: int = 512,
    prefix_cache: bool = True,
    sample_rows: SampleRows = sample_rows_numpy,
) -> Engine:
    """One policy is called `early`. The native executor, unless the twin's memory or its checks are wanted."""
    table = policies if isinstance(policies, Mapping) else {"early": policies} if policies is not None else {}
    return Engine(
        executor or native(),
        max_context=CONTEXT,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        exit_policies=table,
        exit_batching=batching,
        max_pending=max_pending,
        prefix_cache=prefix_cache,
        sample_rows=sample_rows,
    )


def alone(policies: ExitPolicy | Mapping[str, ExitPolicy] | None, asked: Sequence[Request]) -> dict[SequenceKey, Told]:
    """Each request in an engine of its own, leaving as `compact` has it and paying as late as may be."""
    told: dict[SequenceKey, Told] = {}
    for request in asked:
        told |= run(engine_with(policies, max_pending=64, prefix_cache=False), [request])
    return told


def stored_kv(executor: TwinExecutor) -> list[NDArray[np.floating]]:
    return [array for cache in executor._caches for array in (cache.keys, cache.values)]


def says_the_same(mine: Mapping[SequenceKey, Told], other: Mapping[SequenceKey, Told]) -> None:
    """Tokens, logprobs, ends: bit for bit."""
    assert mine.keys() == other.keys()
    for key, told in mine.items():
        assert told.token_ids == other[key].token_ids, key
        assert told.logprobs == other[key].logprobs, key
        assert told.exit_layers == other[key].exit_layers, key
        assert (told.finish_reason, told.text_stopped) == (other[key].finish_reason, other[key].text_stopped), key
