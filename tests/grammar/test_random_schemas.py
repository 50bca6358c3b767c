"""500 random schemas after short prompts: what ends is valid, drafts change no token, and what is valid may be said.

The first two by three models: one that says anything, a native one of random weights, and the default one. Answers
that `max_tokens` cuts are counted; they are beginnings that the grammar allows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, RequestOptions, SamplingParams
from offramp.core import Request, StructuredOutputsParams
from offramp.grammar.compiled import GrammarMatcher
from offramp.model.executor import LayerExecutor
from offramp.testing.models import END_OF_TURN
from offramp.testing.running import run
from tests.grammar.engines import bushy, engine_of, native, same, scripted, undrafted
from tests.grammar.grammars import compiled, feed, request, text_of, tokens
from tests.grammar.schemas import (
    is_valid,
    nested_definitions_are_shared,
    random_object,
    random_schema,
    random_value,
)

ROUNDS, SCHEMAS = 125, 4
"""Of so many schemas each, which are answered at the same time."""
FIRST = (0, 3)
SEEDS = [*FIRST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(ROUNDS) if seed not in FIRST)]
PROMPTS = ("hello", "Say it:", "{", '{"id": ', "[1, 2,", '"', "städte?", "12", "null", '{"name": "x"} again: ')
ENDED, CUT = "structured_ended", "structured_cut"
Schemas = Mapping[str, dict[str, Any]]


@cache
def all_schemas() -> list[dict[str, Any]]:
    """Distinct ones; three in four are objects."""
    rng, found = random.Random(0), dict[str, dict[str, Any]]()
    while len(found) < ROUNDS * SCHEMAS:
        schema = nested_definitions_are_shared(random_object(rng) if rng.random() < 0.75 else random_schema(rng))
        found[json.dumps(schema)] = schema
    return list(found.values())


def schemas_of(seed: int) -> dict[str, dict[str, Any]]:
    """Those of a round, by the names of their requests."""
    return {f"r{number}": all_schemas()[seed * SCHEMAS + number] for number in range(SCHEMAS)}


def asked_of(seed: int, temperature: float, most: int) -> tuple[list[Request], Schemas]:
    """Requests of one round, for so many tokens at most; every other round without white space."""
    rng = random.Random(seed)
    schemas = schemas_of(seed)
    asked = []
    for name, schema in schemas.items():
        structure = StructuredOutputsParams(json=schema, disable_any_whitespace=seed % 2 == 0)
        made = request(
            structure,
            name=name,
            seed=seed,
            temperature=temperature,
            max_tokens=most,
            logprobs=1,
            n=1 + (seed == 3),
        )
        asked.append(replace(made, prompt_token_ids=tokens(rng.choice(PROMPTS))))
    return asked, schemas


def prove(seed: int, make: Callable[[], LayerExecutor], temperature: float, most: int = 120) -> tuple[int, int]:
    """How many answers ended, and how many were cut, of one round."""
    asked, schemas = asked_of(seed, temperature, most)
    plain = run(engine_of(make), [undrafted(each) for each in asked])
    assert same(run(engine_of(make), asked), plain), "forced tokens"
    for settings in ({}, {"max_num_batched_tokens": 24, "max_num_seqs": 2}):
        engine = engine_of(make, bushy(plain), **settings)
        assert same(run(engine, asked), plain), "a tree of drafts"
        assert engine.statistics.num_accepted_tokens > 0
    grammars = {each.request_id: each.grammar for each in asked}
    for (name, _), told in plain.items():
        grammar = grammars[name]
        assert grammar is not None
        assert told.finish_reason in ("stop", "length"), told.error
        assert grammar.matcher().follows(told.token_ids) == len(told.token_ids)
        if told.finish_reason == "stop":
            assert is_valid(text_of(told.token_ids), schemas[name]), (text_of(told.token_ids), schemas[name])
    num_ended = sum(told.finish_reason == "stop" for told in plain.values())
    return num_ended, len(plain) - num_ended


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("make", [scripted, native])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_schemas_with_and_without_drafts(
    seed: int, make: Callable[[], LayerExecutor], temperature: float, record_property: Callable[[str, int], None]
) -> None:
    num_ended, num_cut = prove(seed, make, temperature)
    record_property(ENDED, num_ended)
    record_property(CUT, num_cut)
    assert num_ended or seed % 2, "without white space most answers fit into so many tokens"


def test_there_are_as_many_schemas_as_it_says() -> None:
    answered = [json.dumps(schema) for seed in range(ROUNDS) for schema in schemas_of(seed).values()]
    assert len(set(answered)) == len(answered) == 500
    assert sum(len(schema.get("properties", {})) > 1 for schema in all_schemas()) > 250


def everything(self: GrammarMatcher) -> NDArray[np.bool_]:
    return np.ones(self._vocab_size, np.bool_)


def with_an_end(allowed: Callable[[GrammarMatcher], NDArray[np.bool_]]) -> Callable[..., NDArray[np.bool_]]:
    def allowed_or_end(self: GrammarMatcher) -> NDArray[np.bool_]:
        mask = allowed(self).copy()
        mask[END_OF_TURN] = True
        return mask

    return allowed_or_end


BROKEN: dict[str, tuple[str, object]] = {
    "no mask": ("allowed", everything),
    "an end anywhere": ("allowed", with_an_end(GrammarMatcher.allowed)),
    "walks that are not taken back": ("rewind", lambda self, count: None),
    "tokens that are not followed": ("advance", lambda self, token_id: None),
    "an end too early": ("ended", property(lambda self: True)),
}


@pytest.mark.parametrize("make", [scripted, native])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_matcher_is_found(
    fault: str, make: Callable[[], LayerExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, broken = BROKEN[fault]
    monkeypatch.setattr(GrammarMatcher, name, broken)
    with pytest.raises(AssertionError):
        prove(0, make, 1.3, most=40)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 125))])
def test_whatever_is_valid_may_be_said(seed: int, indent: int | None) -> None:
    """Random values of random schemas, as others write them: a grammar that is too strict is found."""
    rng = random.Random(seed)
    for schema in schemas_of(seed).values():
        value = random_value(schema, rng)
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)
        assert is_valid(text, schema), (text, schema)
        matcher = compiled(json=schema, disable_any_whitespace=indent is None).matcher()
        feed(matcher, text)
        assert matcher.allowed()[END_OF_TURN], (text, schema)


@pytest.fixture(scope="module")
def llm(default_model_path: Path) -> Iterator[LLM]:
    with LLM(str(default_model_path), max_context=512) as llm:
        yield llm


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_default_model(
    llm: LLM, seed: int, temperature: float, record_property: Callable[[str, int], None]
) -> None:
    rng = random.Random(seed)
    schemas = list(schemas_of(seed).values())
    structures = [StructuredOutputsParams(json=schema, disable_any_whitespace=seed % 2 == 0) for schema in schemas]
    params = [
        SamplingParams(temperature=temperature, seed=seed, max_tokens=64, structured_outputs=structure)
        for structure in structures
    ]
    prompts = [rng.choice(PROMPTS) for _ in schemas]
    plain = [output.outputs[0] for output in llm.generate(prompts, params, RequestOptions(draft="off"))]
    drafted = [output.outputs[0] for output in llm.generate(prompts, params)]
    assert [choice.token_ids for choice in drafted] == [choice.token_ids for choice in plain]
    ended = [choice.finish_reason == "stop" for choice in plain]
    assert all(choice.finish_reason in ("stop", "length") for choice in plain)
    for choice, schema, whole in zip(plain, schemas, ended, strict=True):
        assert is_valid(choice.text, schema) or not whole, (choice.text, schema)
    record_property(ENDED, sum(ended))
    record_property(CUT, len(ended) - sum(ended))
