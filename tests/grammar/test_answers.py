"""Answers under a grammar: valid, the same with drafts as without, and ended where the grammar ends."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import DraftAsk, DraftParams, Request, SequenceKey, StructuredOutputsParams, TokenTree
from offramp.draft import make_drafter
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.drafters import Propose, ScriptedDrafter, never
from offramp.testing.models import END_OF_TURN
from offramp.testing.running import Told, run
from offramp.testing.scripted import ScriptedModel
from offramp.testing.toy import toy_config, toy_source
from tests.grammar.grammars import VOCAB, request, text_of, tokens
from tests.grammar.schemas import is_valid, nested_definitions_are_shared, random_object

CONTEXT = 160
MODEL = build_executor(
    toy_source(
        toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB),
        seed=5,
    ),
    kv="f16",
    num_pages=64,
    threads=1,
)
Answers = dict[SequenceKey, Told]


def noise(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Every logit depends on the whole history: one wrong token changes all that follows."""
    return np.random.default_rng(history).standard_normal(VOCAB, dtype=np.float32)


def scripted(num_pages: int = 32) -> LayerExecutor:
    return ScriptedModel(noise, num_pages=num_pages, vocab_size=VOCAB)


def native() -> LayerExecutor:
    return MODEL


def engine_of(make: Callable[[], LayerExecutor] = native, propose: Propose | None = None, **settings: int) -> Engine:
    drafter = None if propose is None else ScriptedDrafter(propose, max_nodes=12)
    return Engine(make(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows, **settings)


def undrafted(asked: Request) -> Request:
    return replace(asked, drafting=DraftParams(drafter="off"))


def bushy(answers: Answers) -> Propose:
    """The right tokens in a tree of others, some of which the grammar forbids."""

    def propose(ask: DraftAsk) -> TokenTree:
        rng = random.Random(f"{ask.key} {len(ask.token_ids)}")
        begin = len(ask.token_ids) - ask.prompt_len
        ids, parents, right = [], [], -1
        for token in answers[ask.key].token_ids[begin : begin + 4]:
            ids += [rng.randrange(VOCAB), token, rng.randrange(VOCAB)]
            parents += [right, right, right]
            right = len(ids) - 2
        return TokenTree(tuple(ids), tuple(parents))

    return propose


def same(left: Answers, right: Answers) -> bool:
    def facts(answers: Answers) -> dict[SequenceKey, tuple[object, ...]]:
        return {key: (told.token_ids, told.finish_reason, told.logprobs) for key, told in answers.items()}

    return facts(left) == facts(right)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("make", [scripted, native])
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 84))])
def test_random_schemas_with_and_without_drafts(
    seed: int, make: Callable[[], LayerExecutor], temperature: float
) -> None:
    rng = random.Random(seed)
    schemas = {f"r{number}": nested_definitions_are_shared(random_object(rng)) for number in range(4)}
    asked = [
        request(
            StructuredOutputsParams(json=schema, disable_any_whitespace=seed % 2 == 0),
            name=name,
            seed=seed,
            temperature=temperature,
            max_tokens=60,
            logprobs=1,
            n=1 + (seed == 3),
        )
        for name, schema in schemas.items()
    ]
    plain = run(engine_of(make), [undrafted(each) for each in asked])
    assert same(run(engine_of(make), asked), plain)
    assert same(run(engine_of(make, bushy(plain)), asked), plain)
    few = engine_of(make, bushy(plain), max_num_batched_tokens=24, max_num_seqs=2)
    assert same(run(few, asked), plain)
    whole = {key: told for key, told in plain.items() if told.finish_reason == "stop"}
    assert whole or seed % 2, "without whitespace most answers fit into so many tokens"
    for (name, _), told in whole.items():
        assert is_valid(text_of(told.token_ids), schemas[name]), text_of(told.token_ids)
    assert all(told.finish_reason in ("stop", "length") for told in plain.values())


def test_a_fixed_answer_takes_one_step_after_the_prompt() -> None:
    text = '{"name":"hello","kind":[1,2,3]}'
    asked = request(StructuredOutputsParams(choice=[text]), max_tokens=120, temperature=0.0)
    engine = engine_of()
    told = run(engine, [asked])["r", 0]
    assert text_of(told.token_ids) == text
    assert told.finish_reason == "stop"
    assert told.token_ids == tokens(text), "no end token is needed where nothing else may follow"
    statistics = engine.statistics
    assert statistics.num_steps <= 2
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens
    plain = engine_of()
    assert run(plain, [undrafted(asked)])["r", 0].token_ids == told.token_ids
    assert plain.statistics.num_steps == len(told.token_ids)


def test_forced_tokens_go_before_the_drafter_which_is_asked_elsewhere() -> None:
    asked = request(StructuredOutputsParams(regex="[ab]{4} is the name"), max_tokens=60, temperature=1.0)
    drafter = ScriptedDrafter(never, max_nodes=8)
    engine = Engine(native(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows)
    told = run(engine, [asked])["r", 0]
    assert text_of(told.token_ids).endswith(" is the name")
    assert 0 < len(drafter.asks) < len(told.token_ids)
    assert engine.statistics.num_accepted_tokens > 4


@pytest.mark.parametrize("limit", [0, 3])
def test_max_draft_holds_for_forced_tokens(limit: int) -> None:
    asked = request(StructuredOutputsParams(choice=["hello world 12"]), max_tokens=60)
    engine = engine_of()
    told = run(engine, [replace(asked, drafting=DraftParams(max_draft=limit))])["r", 0]
    assert text_of(told.token_ids) == "hello world 12"
    assert max(told.block_lens) == limit + 1


@pytest.mark.parametrize("length", [1, 2, 5])
def test_max_tokens_cuts_an_answer(length: int) -> None:
    asked = request(StructuredOutputsParams(choice=["abcdefgh"]), max_tokens=length)
    told = run(engine_of(), [asked])["r", 0]
    assert (told.finish_reason, text_of(told.token_ids)) == ("length", "abcdefgh"[:length])


def test_at_the_limit_the_end_of_the_grammar_wins() -> None:
    told = run(engine_of(), [request(StructuredOutputsParams(choice=["abc"]), max_tokens=3)])["r", 0]
    assert (told.finish_reason, text_of(told.token_ids)) == ("stop", "abc")


@pytest.mark.parametrize("drafted", [True, False])
def test_min_tokens_and_a_grammar_that_wants_to_end(drafted: bool) -> None:
    def told(structure: StructuredOutputsParams, least: int) -> Told:
        asked = request(structure, max_tokens=30, min_tokens=least)
        return run(engine_of(), [asked if drafted else undrafted(asked)])["r", 0]

    long_enough = told(StructuredOutputsParams(choice=["abc"]), 3)
    assert (long_enough.finish_reason, text_of(long_enough.token_ids)) == ("stop", "abc")
    open_ended = told(StructuredOutputsParams(regex="a+"), 9)
    assert open_ended.token_ids[:9] == tokens("a") * 9
    short = told(StructuredOutputsParams(choice=["abc"]), 4)
    assert (short.finish_reason, text_of(short.token_ids)) == ("error", "abc")
    assert isinstance(short.error, InvalidRequestError)
    assert "min_tokens" in (short.error.hint or "")


def test_processors_work_on_what_the_grammar_allows() -> None:
    structure = StructuredOutputsParams(regex="[ab]{20}")
    [a], [b] = tokens("a"), tokens("b")
    banned = run(engine_of(), [request(structure, max_tokens=30, logit_bias={a: -100.0})])["r", 0]
    assert banned.token_ids == [b] * 20
    first = run(engine_of(), [request(structure, max_tokens=30, top_k=1)])["r", 0]
    greedy = run(engine_of(), [request(structure, max_tokens=30, temperature=0.0)])["r", 0]
    assert first.token_ids == greedy.token_ids, "top-k counts allowed tokens alone"
    turns = run(engine_of(), [request(structure, max_tokens=30, temperature=0.0, frequency_penalty=2.0)])["r", 0]
    assert 7 <= turns.token_ids.count(a) <= 13
    forced = run(engine_of(), [request(StructuredOutputsParams(choice=["ab"]), logit_bias={a: -100.0})])["r", 0]
    assert forced.token_ids == [a, b]


def test_logprobs_are_the_models_own() -> None:
    asked = request(StructuredOutputsParams(choice=["ab"]), temperature=0.0, logprobs=3)
    told = run(engine_of(), [asked])["r", 0]
    assert all(entry.logprob < -0.1 for entry in told.logprobs)
    assert any(entry.rank > 1 for entry in told.logprobs)


def test_neighbours_without_a_grammar_are_not_touched() -> None:
    bound = request(StructuredOutputsParams(json_object=True), name="bound", max_tokens=40)
    free = replace(bound, request_id="free", grammar=None, params=replace(bound.params, structured_outputs=None))
    together, alone = run(engine_of(), [bound, free]), {**run(engine_of(), [bound]), **run(engine_of(), [free])}
    assert same(together, alone)


def test_preempted_sequences_go_on_where_they_were() -> None:
    schema = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 20, "maxItems": 20}
    asked = [
        request(StructuredOutputsParams(json=schema, disable_any_whitespace=True), name=f"r{number}", max_tokens=130)
        for number in range(4)
    ]
    alone = {key: told for each in asked for key, told in run(engine_of(scripted), [each]).items()}
    engine = Engine(scripted(num_pages=6), max_context=CONTEXT, sample_rows=sample_rows)
    assert same(run(engine, asked), alone)
    assert engine.statistics.num_preemptions > 0
    assert all(len(json.loads(text_of(told.token_ids))) == 20 for told in alone.values())


def test_the_json_that_a_prompt_breaks_is_not_copied_b121() -> None:
    """Drafts copy broken JSON from the prompt; the answer is whole all the same."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": False,
    }
    broken = tokens('{"city": "Paris, {"city" "Paris"} {"city": ["Par')
    asked = replace(
        request(StructuredOutputsParams(json=schema), temperature=0.0, max_tokens=60), prompt_token_ids=broken * 2
    )
    plain = run(engine_of(scripted), [undrafted(asked)])
    for name in ("ngram", "suffix", "auto"):
        drafter = make_drafter(name)
        engine = Engine(scripted(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows)
        assert same(run(engine, [asked]), plain)
        assert engine.statistics.num_draft_tokens > 0
    assert is_valid(text_of(plain["r", 0].token_ids), schema)
    assert END_OF_TURN not in plain["r", 0].token_ids
