"""A toy, a smaller one that often says the same, engines in which the one writes for the other, and the slow truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.big_little import BigLittle
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.collaborate.big_little_writer import LittleWriter
from offramp.core import PAGE_SIZE, Request, Rows, SamplingParams
from offramp.draft.own_model import OwnModel
from offramp.engine.engine import Engine
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.sample.sampler import RowJob, adjusted, sample_rows_numpy
from offramp.testing.toy import toy_config, toy_source
from tests.draft.weighted import cut_model

VOCAB = 250
CONTEXT = 256
CONFIG = toy_config(num_layers=3, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB)
SOURCE = toy_source(CONFIG, seed=7)
NUM_LITTLE_LAYERS = 2
BIG = build_executor(SOURCE, kv="f16", num_pages=40, threads=1)
LITTLE = cut_model(SOURCE, NUM_LITTLE_LAYERS)

SAMPLING: Mapping[str, Mapping[str, object]] = {
    "greedy": {"temperature": 0.0},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.2, "frequency_penalty": 0.4, "logit_bias": {3: 2.0}},
    "sampled": {"temperature": 0.8, "top_p": 0.95},
}
POLICIES: Mapping[str, BigLittlePolicy] = {
    "lossless": BigLittlePolicy(fallback=0.0, rollback=0.0, max_run=6),
    "big alone": BigLittlePolicy(fallback=1.0, rollback=1e6, max_run=6),
    "little alone": BigLittlePolicy(fallback=0.0, rollback=1e6, max_run=64),
    "some": BigLittlePolicy(fallback=0.02, rollback=4.0, max_run=5),
    "strict": BigLittlePolicy(fallback=0.05, rollback=2.5, max_run=3),
    "in turns": BigLittlePolicy(fallback=0.0, rollback=1e6, max_run=1),
}


def request(
    policy: str | None,
    name: str = "r",
    *,
    sampling: str = "greedy",
    prompt: int = 9,
    max_tokens: int = 30,
    seed: int = 2,
    **params: object,
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[(5 * place + prompt) % 240 for place in range(prompt)],
        params=SamplingParams(max_tokens=max_tokens, logprobs=1, **{**SAMPLING[sampling], **params}),  # type: ignore[arg-type]
        seed=seed,
        big_little=policy,
    )


def own_model(little: LayerExecutor = LITTLE, *, max_context: int = 1 << 20, num_shared: int = VOCAB) -> OwnModel:
    return OwnModel(little, max_context=max_context, vocab_size=VOCAB, num_shared=num_shared)


def pair_of(model: OwnModel | None = None) -> BigLittle:
    return BigLittle(LittleWriter(model or own_model(), sample_rows), POLICIES, sample_rows=sample_rows)


def engine_of(little: BigLittle | None = None, big: LayerExecutor = BIG, **settings: object) -> Engine:
    return Engine(big, max_context=CONTEXT, little=little or pair_of(), sample_rows=sample_rows, **settings)  # type: ignore[arg-type]


@dataclass(slots=True)
class Truth:
    """One token after the other, each model asked anew about the whole text."""

    token_ids: list[int] = field(default_factory=list)
    by_little: list[bool] = field(default_factory=list)  # [tokens]
    differing: list[bool] = field(default_factory=list)  # [tokens], plain decoding would have drawn another one
    num_rollbacks: int = 0


def truth_of(asked: Request) -> Truth:
    """Big-little decoding as it is defined, without drafts, caches and batches; end tokens apart."""
    assert asked.big_little is not None
    policy, truth, run = POLICIES[asked.big_little], Truth(), 0
    assert asked.params.max_tokens is not None
    while len(truth.token_ids) < asked.params.max_tokens:
        text = [*asked.prompt_token_ids, *truth.token_ids]
        job = _job(asked, truth.token_ids)
        big, little = (_behind(layers, text) for layers in (CONFIG.num_layers, NUM_LITTLE_LAYERS))
        drawn, guess = _drawn(big, job), _drawn(little, job)
        sure = run < policy.max_run and policy.fallback < 1 and float(_law(little)[guess]) >= policy.fallback
        stands = sure and (guess == drawn or -math.log(_law(adjusted(big, job))[guess]) < policy.rollback)
        truth.num_rollbacks += sure and not stands
        truth.token_ids.append(guess if stands else drawn)
        truth.by_little.append(stands)
        truth.differing.append(stands and guess != drawn)
        run = run + 1 if stands else 0
    return truth


_FRESH = {
    CONFIG.num_layers: build_executor(SOURCE, kv="f16", num_pages=8, threads=1),
    NUM_LITTLE_LAYERS: cut_model(SOURCE, NUM_LITTLE_LAYERS, num_pages=8),
}
"""Which no engine writes into."""


def _behind(num_layers: int, text: list[int]) -> NDArray[np.float32]:
    """Logits behind a text, all of which runs."""
    model, count = _FRESH[num_layers], len(text)
    pages = np.arange(-(-count // PAGE_SIZE), dtype=np.int32)
    rows = Rows.plain(np.array(text, np.int32), np.zeros(count, np.int32), np.arange(count, dtype=np.int32), [pages])
    hidden = model.run_layers(model.embed(rows), rows, 0, num_layers)
    [row] = model.logits(hidden.take(np.array([count - 1], np.int32)))
    return row


def _drawn(row: NDArray[np.float32], job: RowJob) -> int:
    [token] = sample_rows_numpy(row[None], [job])
    assert isinstance(token, int)
    return token


def _job(asked: Request, output: list[int]) -> RowJob:
    return RowJob(
        params=asked.params,
        seed=asked.seed,
        position=len(output),
        prompt_ids=np.array(asked.prompt_token_ids),
        output_ids=np.array(output, dtype=np.int32),
        eos_token_ids=asked.eos_token_ids,
    )


def _law(row: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    return weights / weights.sum()
