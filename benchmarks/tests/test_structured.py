"""Turns, equality, lines and the page of structured output, over a scripted model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.page import Json
from benchmarks.speculation.contestant import Sample
from benchmarks.speculation.turns import TokensDifferError
from benchmarks.structured import __main__ as program
from benchmarks.structured.cases import FIXED, FIXED_SCHEMA, PLACES, REPORT, WIDE, groups, prompts
from benchmarks.structured.contestant import FORCED, Contestant
from benchmarks.structured.page import frame, render
from benchmarks.structured.summary import cost_line, forced_line
from benchmarks.structured.turns import BOUND, PLAIN, compile_seconds, cost_turns, forced_turns
from benchmarks.tests.test_session import FACTS
from benchmarks.tests.test_speculation import CHEAP
from offramp.draft import AUTO, OFF
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_grammars
from offramp.testing.models import chat_tokenizer, scripted_model
from tests.grammar.schemas import is_valid

VOCAB = chat_tokenizer().vocab_size
ARGS = argparse.Namespace(streams=[1, 2], prompts=2, tokens=60, rounds=1, parts=list(program.PARTS))
RUN = FACTS | {"model": "toy", "weights": "q8", "prompts": 2, "tokens": 60, "rounds": 1}


pytestmark = pytest.mark.usefixtures("unlearned")


def noise(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Every logit depends on the whole history: one wrong token changes all that follows."""
    return np.random.default_rng(history).standard_normal(VOCAB, dtype=np.float32)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return scripted_model(noise, num_pages=40)


@pytest.fixture(scope="module")
def lines(loaded: LoadedModel) -> list[Json]:
    """As a whole run tells them."""
    found = list(program.results(loaded, CHEAP, ARGS))
    return [json.loads(json.dumps(line | {"provenance": RUN})) for line in found]


def test_a_whole_run(lines: list[Json]) -> None:
    by_kind = {kind: [line for line in lines if line["result"] == kind] for kind in ("cost", "forced", "compile")}
    assert [(line["grammar"], line["streams"]) for line in by_kind["cost"]] == [(n, s) for s in (1, 2) for n in WIDE]
    assert [(line["drafts"], line["streams"]) for line in by_kind["forced"]] == [
        (side, streams) for streams in (1, 2) for side in (FORCED, AUTO)
    ]
    assert [line["what"] for line in by_kind["compile"]] == ["vocabulary", *WIDE, "fixed schema"]
    for line in by_kind["forced"]:
        assert line["tokens"] == 2 * 60
        assert 0 < line["num_accepted_tokens"] <= line["num_draft_tokens"]
        assert line["tokens_per_step"] > 1
    forced = by_kind["forced"][0]
    assert forced["num_accepted_tokens"] == forced["num_draft_tokens"], "what is forced comes in any case"
    assert (forced["target"], by_kind["forced"][1]["target"]) == (1.0, None)


def test_costs_are_of_as_many_tokens_without_drafts(loaded: LoadedModel) -> None:
    grammar = make_grammars(loaded).compile(WIDE["json_object"])
    samples = cost_turns(loaded, grammar, groups(prompts(loaded, REPORT, 3), 2), tokens=20, rounds=2)
    for name in (PLAIN, BOUND):
        assert [len(runs) for runs in samples[name]] == [1, 1]
    for plain, bound in zip(samples[PLAIN], samples[BOUND], strict=True):
        assert [len(ids) for ids in plain[0].token_ids] == [len(ids) for ids in bound[0].token_ids]
        assert plain[0].counts.steps == bound[0].counts.steps
        assert plain[0].counts.drafts == bound[0].counts.drafts == 0
        assert plain[0].token_ids != bound[0].token_ids, "unbound noise is no JSON"
        text = loaded.tokenizer.decode(bound[0].token_ids[0])
        assert text.startswith("{")


def test_the_cost_is_seconds_over_seconds(loaded: LoadedModel) -> None:
    grammar = make_grammars(loaded).compile(WIDE["any text"])
    samples = cost_turns(loaded, grammar, [prompts(loaded, REPORT, 1)], tokens=6, rounds=2)
    slower = {
        PLAIN: [[replace(run, first=0.0, total=1.0) for run in runs] for runs in samples[PLAIN]],
        BOUND: [[replace(run, first=0.0, total=1.2) for run in runs] for runs in samples[BOUND]],
    }
    line = cost_line("any text", 1, slower)
    assert (line["ratio"]["median"], line["met"]) == (1.2, False)
    swapped = cost_line("any text", 1, {PLAIN: slower[BOUND], BOUND: slower[PLAIN]})
    assert swapped["met"]
    gain = forced_line(FORCED, 1, {OFF: slower[BOUND], FORCED: slower[PLAIN]})
    assert (gain["ratio"]["median"], gain["met"]) == (1.2, True)
    assert not forced_line(FORCED, 1, {OFF: slower[PLAIN], FORCED: slower[PLAIN]})["met"]


def test_answers_of_one_token_are_missing(loaded: LoadedModel) -> None:
    grammar = make_grammars(loaded).compile(WIDE["any text"])
    line = cost_line("any text", 1, cost_turns(loaded, grammar, [prompts(loaded, REPORT, 1)], tokens=1, rounds=1))
    assert line["result"] == "missing"
    assert "one token" in render([line | {"provenance": RUN}])


def test_answers_of_one_step_are_missing(loaded: LoadedModel) -> None:
    grammar = make_grammars(loaded).compile(FIXED)
    samples = forced_turns(loaded, CHEAP, grammar, [prompts(loaded, REPORT, 1)], tokens=8, rounds=1)
    line = forced_line(FORCED, 1, samples)
    assert line["result"] == "missing"
    assert "fixed schema, forced" in render([line | {"provenance": RUN}])


@pytest.mark.parametrize("side", [FORCED, AUTO])
def test_other_tokens_end_the_run(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    honest = Contestant.run

    def forged(self: Contestant, asked: Sequence[list[int]], limits: Sequence[int]) -> Sample:
        sample = honest(self, asked, limits)
        return replace(sample, token_ids=[[7]]) if self._draft == side else sample

    monkeypatch.setattr(Contestant, "run", forged)
    grammar = make_grammars(loaded).compile(FIXED)
    with pytest.raises(TokensDifferError, match=f"with {side} other tokens"):
        forced_turns(loaded, CHEAP, grammar, [prompts(loaded, REPORT, 1)], tokens=4, rounds=1)


def test_a_grammar_that_changes_its_mind_ends_the_run(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, seen = Contestant.run, list[Sample]()

    def forged(self: Contestant, asked: Sequence[list[int]], limits: Sequence[int]) -> Sample:
        sample = honest(self, asked, limits)
        seen.append(sample)
        return replace(sample, token_ids=[[7] * len(sample.token_ids[0])]) if len(seen) > 2 else sample

    monkeypatch.setattr(Contestant, "run", forged)
    grammar = make_grammars(loaded).compile(WIDE["any text"])
    with pytest.raises(TokensDifferError, match="under the same grammar"):
        cost_turns(loaded, grammar, [prompts(loaded, REPORT, 1)], tokens=4, rounds=2)


def test_the_fixed_schema_is_mostly_fixed(loaded: LoadedModel) -> None:
    """Drafted, its answer takes few steps; and it is one that fits."""
    grammar = make_grammars(loaded).compile(FIXED)
    [asked] = prompts(loaded, "{place}", 1)
    sample = Contestant(loaded, None, FORCED, grammar).run([asked], [900])
    [answer] = sample.token_ids
    assert is_valid(loaded.tokenizer.decode(answer), FIXED_SCHEMA)
    assert sample.counts.accepted.total() > 0.7 * len(answer)


def test_nothing_is_compiled_twice(loaded: LoadedModel) -> None:
    vocabulary, seconds = compile_seconds(loaded, WIDE, rounds=2)
    assert len(vocabulary) == 2
    assert set(seconds) == set(WIDE)
    assert all(value > 20e-6 for values in seconds.values() for value in values), "a kept one takes a few microseconds"


def test_groups_hold_each_prompt_once() -> None:
    asked = [[number] for number in range(7)]
    assert groups(asked, 1) == [[ids] for ids in asked]
    assert groups(asked, 3) == [[[0], [1], [2]], [[3], [4], [5]]]
    assert len(set(PLACES)) == len(PLACES)


def test_the_page_is_whole(lines: list[Json]) -> None:
    page = render(lines)
    for heading in ("Cost of a grammar", "Gain from forced tokens", "Compile", "How to read it"):
        assert f"\n## {heading}" in page
    for name in WIDE:
        assert f"\n| {name} | 1 | " in page
    assert f"\n| `{FORCED}` | 2 | " in page
    assert page.startswith(frame().split("\nNot measured")[0])


@pytest.mark.parametrize(
    "words",
    [
        ["--parts", "speed"],
        ["--streams", "0"],
        ["--streams", "13"],
        ["--prompts", "3", "--streams", "4"],
        ["--rounds", "0"],
        ["--smoke", "--write-page"],
    ],
)
def test_impossible_arguments_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["structured", "--output", str(tmp_path / "out"), *words])
    with pytest.raises(SystemExit) as refusal:
        program.main()
    assert refusal.value.code == 2
