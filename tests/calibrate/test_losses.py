"""Losses of answers really generated: zero where exits are full depth, and equal to what a slow truth counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.calibrate.answers import Answer, answer_all
from offramp.calibrate.losses import LOSSES, loss_of
from offramp.core import Rows, SamplingParams
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError, NumericError, OfframpError
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill
from offramp.llm.loading import LoadedModel
from offramp.sample.sampler import RowJob, sample_rows_numpy
from offramp.testing.twin import TwinExecutor
from tests.calibrate.settling import (
    CONTEXT,
    DRAWN,
    GREEDY,
    LAYERS,
    NUM_LAYERS,
    prompts,
    rig,
    settling_model,
    settling_source,
    silent,
)

FILLS: list[Fill] = ["deferred", "propagate"]
PARAMS = pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])


def policy(threshold: float, fill: Fill) -> FrozenPolicy:
    return FrozenPolicy(layers=LAYERS, thresholds=(threshold, threshold), measure="margin", fill=fill)


def answers_and_losses(
    loaded: LoadedModel, name: str, threshold: float, fill: Fill, params: SamplingParams, count: int = 12
) -> tuple[list[Answer], np.ndarray]:
    assert loaded.exits is not None
    here = rig(loaded, params, {"early": loaded.exits.policy(policy(threshold, fill))})
    answers = answer_all(here, prompts(count), "early", silent)
    loss = loss_of(name)(here, lambda: answer_all(here, prompts(count), None, silent), loaded.tokenizer)
    return answers, loss(answers, silent)


@pytest.mark.parametrize("fill", FILLS)
@PARAMS
@pytest.mark.parametrize("name", ["tokens", "rouge"])
def test_exits_that_are_full_depth_lose_nothing(name: str, fill: Fill, params: SamplingParams) -> None:
    """Behind the exit no layer changes anything, so head and K/V at the exit are those of full depth."""
    answers, losses = answers_and_losses(settling_model(0.0), name, 0.0, fill, params)
    assert all(set(answer.layers[1:].tolist()) == {LAYERS[0]} for answer in answers)
    assert losses.tolist() == [0.0] * len(answers)


def slow_tokens(twin: TwinExecutor, answer: Answer, params: SamplingParams, eos: frozenset[int]) -> list[int]:
    """What plain decoding draws at each place, by the numpy executor, one fresh prefill a token."""
    drawn = []
    for output in range(len(answer)):
        text = np.concatenate([answer.prompt.token_ids, answer.token_ids[:output]])
        places = np.arange(len(text), dtype=np.int32)
        rows = Rows(
            tokens=text,
            sequence=np.zeros(len(text), np.int32),
            positions=places,
            slots=places,
            prefix_lens=places,
            ancestor_slots=np.zeros(0, np.int32),
            ancestor_starts=np.zeros(len(text) + 1, np.int32),
            page_ids=np.arange(4, dtype=np.int32),
            page_starts=np.array([0, 4], np.int32),
        )
        h = twin.run_layers(twin.embed(rows), rows, 0, NUM_LAYERS)
        job = RowJob(
            params=params,
            seed=answer.prompt.seed,
            position=output,
            prompt_ids=answer.prompt.token_ids,
            output_ids=answer.token_ids[:output],
            eos_token_ids=eos,
        )
        [token] = sample_rows_numpy(twin.logits(h.take(places[-1:])), [job])
        assert isinstance(token, int)
        drawn.append(token)
    return drawn


@pytest.mark.parametrize("fill", FILLS)
@PARAMS
def test_the_share_of_tokens_is_what_a_slow_truth_counts(fill: Fill, params: SamplingParams) -> None:
    loaded = settling_model(0.6)
    answers, losses = answers_and_losses(loaded, "tokens", 0.002, fill, params, count=4)
    twin = TwinExecutor(settling_source(0.6), num_pages=4)
    for answer, loss in zip(answers, losses.tolist(), strict=True):
        plain = slow_tokens(twin, answer, params, loaded.eos_token_ids)
        first = rig(loaded).first_other(answer)
        untouched = len(answer) if first is None else first
        assert answer.token_ids[:untouched].tolist() == plain[:untouched]
        differ = sum(one != other for one, other in zip(plain, answer.token_ids.tolist(), strict=True))
        assert loss == differ / len(answer)
    assert 0 < losses.mean() < 1
    assert {layer for answer in answers for layer in answer.layers.tolist()} >= {LAYERS[0], NUM_LAYERS}


def test_whole_answers_are_compared_without_end_tokens() -> None:
    loaded = settling_model(0.0)
    here = rig(loaded)
    [prompt] = prompts(1)
    [end] = list(loaded.tokenizer.eos_token_ids)[:1]

    def answer(*tokens: int) -> Answer:
        ids = np.array(tokens, np.int32)
        return Answer(prompt, ids, np.full(len(ids), NUM_LAYERS, np.int32))

    rouge = loss_of("rouge")(here, lambda: [answer(5, 6, 7, end), answer(end)], loaded.tokenizer)
    assert rouge([answer(5, 6, 7), answer(end)], silent).tolist() == [0.0, 0.0]
    assert rouge([answer(5, 9, 7, 8, end), answer(5)], silent).tolist() == [1 - 4 / 7, 1.0]


def test_a_score_is_lost_only_where_full_depth_had_it() -> None:
    loaded = settling_model(0.0)
    here = rig(loaded)
    encode = loaded.tokenizer.encode

    def answers(*texts: str) -> list[Answer]:
        wanted = [replace(each, references=("a b", "c")) for each in prompts(len(texts))]
        ids = [np.array(encode(text), np.int32) for text in texts]
        return [Answer(p, i, np.full(len(i), NUM_LAYERS, np.int32)) for p, i in zip(wanted, ids, strict=True)]

    match = loss_of("exact-match")(here, lambda: answers(" a  b\n", "a b", "no", "no", "c"), loaded.tokenizer)
    assert match(answers("a b", "a", "a b", "nor", "b"), silent).tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]


def test_an_unknown_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="loss='bleu'") as refusal:
        loss_of("bleu")
    assert all(name in refusal.value.hint for name in LOSSES)


def test_a_model_that_yields_nan_is_refused_by_the_prompt_s_line() -> None:
    """In answering, and in comparing; afterwards the engine is idle."""
    loaded = settling_model(0.6)
    answers, _ = answers_and_losses(loaded, "tokens", 0.002, "deferred", GREEDY)

    def broken(logits: NDArray[np.float32], jobs: Sequence[RowJob]) -> list[int | OfframpError]:
        """From the fourth token on."""
        damage = np.array([np.nan if job.position > 3 else 0.0 for job in jobs], np.float32)
        return sample_rows_numpy(logits + damage[:, None], jobs)

    engine = Engine(loaded.executor, max_context=CONTEXT, sample_rows=broken)
    here = replace(rig(loaded), engine=engine, sample_rows=broken)
    with pytest.raises(NumericError, match=r"line \d+: "):
        answer_all(here, prompts(5), None, silent)
    assert not engine.has_work
    assert engine.statistics.num_used_pages == 0
    with pytest.raises(NumericError, match=r"line \d+: "):
        loss_of("tokens")(here, lambda: [], loaded.tokenizer)(
            [a for a in answers if set(a.layers) & set(LAYERS)], silent
        )
