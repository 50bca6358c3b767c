"""Rows as a policy sees them: values of the right layer, logits on demand and never twice, tokens of reduced heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from offramp.core import ExitParams, Ids, Request, SamplingParams
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.exits.policy import ExitRows
from offramp.model.executor import FINAL, HeadId, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.native import build_executor
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import run
from offramp.testing.toy import toy_config, toy_source
from tests.exits.exiting import EARLY, Recorder, at_full_depth, coin, engine_with, native, requests, twin
from tests.exits.test_propagate import chain_rows

KNOWN: Ids = np.arange(3, 260, 4, dtype=np.int32)
PROMPT = [5, 9, 33, 7]
SIX = toy_source(toy_config(num_layers=6, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1), seed=3)


def three_rows(recorder: Recorder, head: HeadId = FINAL) -> ExitRows:
    rows = chain_rows([1, 2, 3], 0)
    hidden = recorder.run_layers(recorder.embed(rows), rows, 0, 2)
    keys = [(name, 0) for name in "abc"]
    outputs = np.array([1, 2, 3], dtype=np.int32)
    return ExitRows(recorder, head, layer=2, hidden=hidden, previous=None, keys=keys, outputs=outputs)


@pytest.mark.parametrize("reduced", [False, True])
def test_no_row_goes_through_the_head_twice(reduced: bool) -> None:
    recorder = Recorder(twin())
    head = recorder.add_head(HeadWeights(vocab_ids=KNOWN)) if reduced else FINAL
    rows = three_rows(recorder, head)
    whole = recorder.summarize(rows.hidden, head)
    recorder.heads.clear()
    for asked in ([2], [0, 2], [2, 1, 0], [0, 1, 2]):
        summary = rows.summary(asked)
        assert np.array_equal(summary.logits, whole.logits[asked])
        assert np.array_equal(summary.best, whole.best[asked])
        assert np.array_equal(summary.scores, whole.scores[asked])
    assert np.array_equal(rows.row_logits(1), whole.logits[1])
    tokens = KNOWN[whole.best] if reduced else whole.best
    assert [rows.likeliest(row) for row in range(3)] == tokens.tolist()
    assert recorder.heads == [(head, 1)] * 3
    assert rows.num_head_rows == 3


def test_one_call_for_all_that_is_asked_at_once() -> None:
    recorder = Recorder(twin())
    rows = three_rows(recorder)
    first = rows.summary([0, 1, 2])
    assert rows.summary([0, 1, 2]) is first, "the same rows again are not copied"
    assert recorder.heads == [(FINAL, 3)]
    backwards = three_rows(recorder)
    assert np.array_equal(backwards.summary([2, 1, 0]).logits, first.logits[::-1])


@pytest.mark.parametrize("layer", [1, 3])
def test_hidden_states_are_those_after_the_layer_and_the_one_before(layer: int) -> None:
    """B74: and the token's logits are the head's, final norm included, of the state after the exit's layer."""
    policy = ScriptedExits((layer,), lambda key, output, layer: output == 1, wants_previous=True)
    [request] = requests(1, max_tokens=2)
    told = run(engine_with(policy), [request])["r0", 0]
    executor, [asked] = native(), policy.asked
    rows = chain_rows([*request.prompt_token_ids, told.token_ids[0]], 0)
    before = executor.run_layers(executor.embed(rows), rows, 0, layer - 1)
    after = executor.run_layers(before, rows, layer - 1, layer)
    assert asked.previous is not None
    assert np.array_equal(asked.previous.numpy()[0], before.numpy()[3])
    assert np.array_equal(asked.hidden.numpy()[0], after.numpy()[3])
    assert np.array_equal(asked.row_logits(0), executor.logits(after)[3])
    assert told.logprobs[1].top[0][0] == executor.logits(after)[3].argmax()


@pytest.mark.parametrize("make", [twin, native])
def test_a_reduced_head_yields_only_tokens_that_it_knows(make: Callable[[], LayerExecutor]) -> None:
    executor = make()
    head = executor.add_head(HeadWeights(vocab_ids=KNOWN))
    whole, reduced = ScriptedExits((2,), coin(0.5)), ScriptedExits((2,), coin(0.5), head=head)
    known = set(KNOWN.tolist())
    mine = run(engine_with(reduced, executor), requests())
    for told in mine.values():
        for layer, token, logprobs in zip(told.exit_layers, told.token_ids, told.logprobs, strict=True):
            assert layer == 5 or token in known
            assert layer == 5 or {one for one, _ in logprobs.top} <= known
    assert any(told.token_ids != mine[key].token_ids for key, told in run(engine_with(whole), requests()).items())


def test_sampling_over_a_reduced_head_draws_from_what_it_knows() -> None:
    """Bias and penalties apply as ever; tokens that the head doesn't know stay out whatever they get."""
    executor = native()
    policy = ScriptedExits((2,), lambda key, output, layer: True, head=executor.add_head(HeadWeights(vocab_ids=KNOWN)))
    params = SamplingParams(temperature=1.5, max_tokens=60, logit_bias={0: 100.0, 7: 3.0}, repetition_penalty=1.1)
    request = Request(request_id="r", prompt_token_ids=PROMPT, params=params, seed=3, exits=EARLY)
    [told] = run(engine_with(policy, executor), [request]).values()
    assert told.token_ids[0] == 0, "the first token is full depth's"
    assert set(told.token_ids[1:]) <= set(KNOWN.tolist())
    assert len(set(told.token_ids)) > 5
    assert 7 in told.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rest_layers_run_for_a_stack_of_rows(temperature: float) -> None:
    """B70: six rows that left after layer 2 of 6, sampling on, then the rest layers for all of them at once."""
    recorder = Recorder(build_executor(SIX, num_pages=4, threads=1))
    policy = ScriptedExits((2,), lambda key, output, layer: output % 7 != 0)
    engine = Engine(recorder, max_context=64, exit_policies={"early": policy}, max_pending=6)
    params = SamplingParams(temperature=temperature, max_tokens=15)
    request = Request(request_id="r", prompt_token_ids=list(b"hello"), params=params, seed=1, exits=EARLY)
    told = run(engine, [request])["r", 0]
    assert told.exit_layers == [6, *[2] * 6, 6, *[2] * 6, 6]
    assert recorder.ranges.count((2, 6, 7)) == 2


def test_a_shallower_exit_changes_the_answer_and_the_event_says_so() -> None:
    """B72 (b): exits after 1, 2, 4 and all layers; without any it equals full depth, and each token tells its depth."""
    answers: dict[int, list[int]] = {}
    for layer in (1, 2, 4, 6):
        policy = ScriptedExits((layer,) if layer < 6 else (), lambda key, output, layer: True)
        executor = build_executor(SIX, num_pages=4, threads=1)
        engine = Engine(executor, max_context=64, exit_policies={"early": policy})
        params = SamplingParams(temperature=0, max_tokens=12)
        request = Request(request_id="r", prompt_token_ids=PROMPT, params=params, seed=0, exits=EARLY)
        told = run(engine, [request])["r", 0]
        assert told.exit_layers == [6, *[layer] * 11]
        answers[layer] = told.token_ids
    plain = Engine(build_executor(SIX, num_pages=4, threads=1), max_context=64)
    full = run(plain, at_full_depth([request]))["r", 0]
    assert full.exit_layers == []
    assert answers[6] == full.token_ids
    assert len({tuple(answer) for answer in answers.values()}) == 4


def test_an_engine_without_exits_refuses_them_with_a_hint() -> None:
    """B76: nothing is looked for in a stock model that has none."""
    with pytest.raises(InvalidRequestError, match="there is no exit policy 'early'") as caught:
        engine_with(None).add_request(requests(1, exits=ExitParams(policy="early"))[0])
    assert caught.value.hint == "no exits are loaded: every token runs all layers"
