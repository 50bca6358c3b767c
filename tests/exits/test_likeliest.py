"""Greedy rows that leave take their head's likeliest token; others, and rows of which more is asked, are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Request, SamplingParams
from offramp.engine.exit_points import ExitBatching
from offramp.errors import NumericError, OfframpError
from offramp.exits.policy import Fill
from offramp.model.executor import FINAL, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.sample.sampler import RowJob, sample_rows_numpy
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import run
from offramp.testing.scripted import ScriptedModel
from tests.exits.exiting import EARLY, VOCAB, coin, engine_with, native, requests, twin

KNOWN = np.arange(3, VOCAB, 4, dtype=np.int32)
PLAIN = SamplingParams(temperature=0, max_tokens=14)
KINDS = {
    "plain": PLAIN,
    "top-k": replace(PLAIN, top_k=3),
    "bias": replace(PLAIN, logit_bias={7: 3.0, 11: 3.0}),
    "repetition": replace(PLAIN, repetition_penalty=1.4),
    "presence": replace(PLAIN, presence_penalty=0.7),
    "frequency": replace(PLAIN, frequency_penalty=0.7),
    "least length": replace(PLAIN, min_tokens=9, stop_token_ids=frozenset({3, 7, 11, 15, 19})),
    "logprobs": replace(PLAIN, logprobs=2),
    "sampled": replace(PLAIN, temperature=0.9),
}


def of_all_kinds() -> list[Request]:
    some = requests(len(KINDS))
    return [
        replace(request, request_id=kind, prompt_token_ids=request.prompt_token_ids[:20], params=params)
        for request, (kind, params) in zip(some, KINDS.items(), strict=True)
    ]


def drawn(asked: Sequence[Request]) -> list[Request]:
    """The same tokens, but with log-probabilities, for which rows over the whole vocabulary are made."""
    return [replace(request, params=replace(request.params, logprobs=1)) for request in asked]


@pytest.mark.parametrize("batching", ["compact", "barrier", "literal"])
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
def test_tokens_are_those_that_are_drawn(reduced: bool, fill: Fill, batching: ExitBatching) -> None:
    told = []
    for asked in (of_all_kinds(), drawn(of_all_kinds())):
        executor = native(num_pages=24)
        head = executor.add_head(HeadWeights(vocab_ids=KNOWN)) if reduced else FINAL
        policy = ScriptedExits((1, 3), coin(0.5), fill=fill, head=head, wants_labels=fill == "deferred")
        told.append((run(engine_with(policy, executor, batching=batching), asked), policy.labels))
    (mine, labels), (wide, wide_labels) = told
    assert labels == wide_labels
    for key in mine:
        assert mine[key].token_ids == wide[key].token_ids, key
        assert mine[key].exit_layers == wide[key].exit_layers, key
    assert {layer for each in mine.values() for layer in each.exit_layers} >= {3, 5}


class Draws:
    """Counts the rows that were drawn from."""

    def __init__(self) -> None:
        self.num_rows = 0

    def __call__(self, logits: np.ndarray, jobs: Sequence[RowJob]) -> list[int | OfframpError]:
        self.num_rows += len(jobs)
        return sample_rows_numpy(logits, jobs)


@pytest.mark.parametrize("make", [twin, native])
def test_no_row_is_made_for_a_plain_greedy_token_that_leaves(make: Callable[[], LayerExecutor]) -> None:
    draws, policy = Draws(), ScriptedExits((2,), lambda key, output, layer: output != 5)
    engine = engine_with(policy, make(), sample_rows=draws)
    told = run(engine, [replace(request, params=PLAIN) for request in requests(2)])
    assert all(each.exit_layers == [5, 2, 2, 2, 2, 5, *[2] * 8] for each in told.values())
    assert draws.num_rows == 4, "the first tokens, and those that stayed"
    assert engine._runner._logits.first(1).shape == (0, VOCAB)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("params", [PLAIN, replace(PLAIN, logprobs=1)], ids=["plain", "logprobs"])
def test_nonsense_at_an_exit_fails_its_request_and_no_other(params: SamplingParams, value: float) -> None:
    def script(history: tuple[int, ...], depth: int) -> np.ndarray:
        logits = np.zeros(VOCAB, dtype=np.float32)
        logits[(history[-1] + 1) % VOCAB] = 9
        if depth == 2 and history[:2] == (1, 1) and len(history) == 6:
            logits[:] = value
        return logits

    policy = ScriptedExits((2,), lambda key, output, layer: True)
    engine = engine_with(policy, ScriptedModel(script, vocab_size=VOCAB, num_pages=12, num_layers=5))
    good = Request(request_id="good", prompt_token_ids=[1, 2, 3], params=params, seed=0, exits=EARLY)
    bad = replace(good, request_id="bad", prompt_token_ids=[1, 1, 3])
    told = run(engine, [good, bad])
    assert told["good", 0].token_ids == list(range(4, 18))
    assert told["good", 0].error is None
    assert told["bad", 0].token_ids == [4, 5, 6]
    assert isinstance(told["bad", 0].error, NumericError)
