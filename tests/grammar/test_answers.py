"""Answers under a grammar: how they begin, end and are cut, beside processors, neighbours and preemption."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offramp.core import DraftParams, StructuredOutputsParams
from offramp.draft import make_drafter
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.native.sampling import sample_rows
from offramp.testing.drafters import ScriptedDrafter, never
from offramp.testing.models import END_OF_TURN
from offramp.testing.running import Told, run
from tests.grammar.engines import CONTEXT, engine_of, native, same, scripted, undrafted
from tests.grammar.grammars import request, text_of, tokens
from tests.grammar.schemas import is_valid


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
