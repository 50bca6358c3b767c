"""Every drafter under a grammar: the tokens of plain decoding, drafts that fit it, and a matcher left where it was."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import cache

import pytest

from offramp.core import DraftAsk, Drafter, DraftParams, Request, Sequence, StructuredOutputsParams, TokenTree, Verdict
from offramp.draft import AUTO, DRAFT_MODEL, DRAFTERS, EAGLE, EARLY_EXIT, MAX_NODES, NEEDS, OFF, Drafters, make_drafter
from offramp.draft.length.fixed import FixedLength
from offramp.draft.plans import FixedPlans
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.engine.taps import Taps
from offramp.errors import OfframpError
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.running import Told, run
from offramp.testing.toy import DictSource, toy_config, toy_source
from tests.draft.weighted import cut_model, eagle_maker, early_maker, heads_of, model_maker
from tests.grammar.grammars import VOCAB, request, text_of, tokens
from tests.grammar.schemas import is_valid
from tests.speculation.wheel import Wheel, WheelMatcher

CONTEXT = 160
EXITS = (1, 2)
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 9},
        "kind": {"enum": ["town", "village"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
    },
    "required": ["city", "kind", "sizes"],
    "additionalProperties": False,
}
STRUCTURES = {
    "schema": StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True),
    "regex": StructuredOutputsParams(regex="([a-e]{2}[0-9]{3}, ){1,4}the end"),
    "choice": StructuredOutputsParams(choice=["hello world", "hello there", "help"]),
}


@cache
def source() -> DictSource:
    config = toy_config(
        num_layers=3, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB
    )
    return toy_source(config, seed=5)


@cache
def model() -> LayerExecutor:
    return build_executor(source(), kv="f16", num_pages=64, threads=1)


class Watched:
    """Passes on, and checks each proposal against the grammar of its ask, and that its matcher was left alone."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.num_lawful = self.num_unlawful = 0

    @property
    def max_nodes(self) -> int:
        return self._drafter.max_nodes

    def propose(self, asks: Items[DraftAsk]) -> Items[TokenTree]:
        before = [_standing(ask) for ask in asks]
        trees = self._drafter.propose(asks)
        assert [_standing(ask) for ask in asks] == before, "a drafter moved the matcher of its ask"
        for ask, tree in zip(asks, trees, strict=True):
            assert ask.matcher is not None
            for path in tree.paths():
                fits = ask.matcher.follows([tree.token_ids[node] for node in path]) == len(path)
                self.num_lawful += fits
                self.num_unlawful += not fits
        return trees

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        assert ask.matcher is not None
        for path in tree.paths() if verdict.error is None else ():  # a dead end is where its matcher stays
            assert ask.matcher.follows([tree.token_ids[node] for node in path]) == len(path), "ruled out, and it ran"
        self._drafter.observe(ask, tree, verdict)

    def forget(self, sequence: Sequence) -> None:
        self._drafter.forget(sequence)


def _standing(ask: DraftAsk) -> tuple[object, ...]:
    matcher = ask.matcher
    assert matcher is not None
    moves = matcher.num_moves if isinstance(matcher, WheelMatcher) else None
    try:
        return moves, matcher.allowed().tobytes(), matcher.forced(9)
    except OfframpError as error:
        return moves, str(error)


def engine_of(name: str, **settings: object) -> tuple[Engine, Watched]:
    draft_rows, taps = DraftRows(model()), Taps((1, 2), lambda request: name in (AUTO, EAGLE))
    makers = {
        EARLY_EXIT: early_maker(model(), heads_of(model(), EXITS), draft_rows, FixedPlans(EXITS, 6, stay_price=0.3)),
        DRAFT_MODEL: model_maker(model(), cut_model(source(), 2, more_ids=3), FixedPlans((), 6)),
        EAGLE: eagle_maker(model(), taps, FixedPlans((), 6)),
    }
    watched = Watched(make_drafter(name, Drafters(makers=makers)))
    engine = Engine(
        model(),
        max_context=CONTEXT,
        drafter=watched,
        lengths=FixedLength(MAX_NODES),
        draft_rows=draft_rows,
        taps=taps,
        sample_rows=sample_rows,
        **settings,  # type: ignore[arg-type]
    )
    return engine, watched


def asked(temperature: float) -> list[Request]:
    """Each grammar twice; the prompts hold an answer, so that copying drafters have something to say."""
    said = tokens('{"city":"Oslo","kind":"town","sizes":[1,2]} ab123, ab124, the end hello there ')
    requests = []
    for number, (name, structure) in enumerate([*STRUCTURES.items()] * 2):
        made = request(
            structure, name=f"{name} {number}", seed=number, temperature=temperature, max_tokens=60, logprobs=1
        )
        requests.append(replace(made, prompt_token_ids=said[number:]))
    return requests


@cache
def truth(temperature: float) -> Mapping[tuple[str, int], Told]:
    plain = Engine(model(), max_context=CONTEXT, sample_rows=sample_rows)
    return run(plain, [replace(each, drafting=DraftParams(drafter=OFF)) for each in asked(temperature)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rows", [24, 512])
@pytest.mark.parametrize("name", [*DRAFTERS, "model,suffix"])
def test_answers_are_those_without_drafts(name: str, rows: int, temperature: float) -> None:
    engine, watched = engine_of(name, max_num_batched_tokens=rows)
    told = run(engine, asked(temperature))
    for key, alone in truth(temperature).items():
        mine = told[key]
        assert (mine.token_ids, mine.logprobs, mine.finish_reason) == (
            alone.token_ids,
            alone.logprobs,
            alone.finish_reason,
        ), key
        if key[0].startswith("schema") and mine.finish_reason == "stop":
            assert is_valid(text_of(mine.token_ids), SCHEMA)
    assert engine.statistics.num_accepted_tokens > 30
    if name in NEEDS:
        assert watched.num_lawful > 30
        assert watched.num_unlawful == 0, "what has logits draws under the grammar"


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_no_drafter_with_weights_moves_the_matcher(name: str) -> None:
    params = replace(asked(0.8)[0].params, structured_outputs=None, max_tokens=30)
    bound = Request(
        request_id="r",
        prompt_token_ids=[3, 4],
        params=params,
        seed=1,
        grammar=Wheel(VOCAB),
        eos_token_ids=frozenset({1}),
    )
    plain = Engine(model(), max_context=CONTEXT, sample_rows=sample_rows)
    alone = run(plain, [replace(bound, drafting=DraftParams(drafter=OFF))])["r", 0]
    engine, watched = engine_of(name)
    assert run(engine, [bound])["r", 0].token_ids == alone.token_ids
    assert watched.num_lawful > 5
    assert watched.num_unlawful == 0


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_forced_tokens_come_first_and_the_drafter_is_asked_elsewhere(name: str) -> None:
    engine, watched = engine_of(name)
    structure = StructuredOutputsParams(regex="[ab]{4} is the name")
    told = run(engine, [request(structure, max_tokens=60, temperature=0.0)])["r", 0]
    assert text_of(told.token_ids).endswith(" is the name")
    assert watched.num_lawful > 0
    assert engine.statistics.num_accepted_tokens >= len(tokens(" is the name")) - 1


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_grammar_that_cannot_go_on_ends_its_request_alone(name: str) -> None:
    dead = request(
        StructuredOutputsParams(grammar='start: /[a-f]{6}/ ("x" /[^\\s\\S]/ | "y" /[^\\s\\S]/ )'),
        name="dead",
        max_tokens=30,
    )
    good = request(STRUCTURES["regex"], name="good", max_tokens=60, temperature=0.0)
    plain = Engine(model(), max_context=CONTEXT, sample_rows=sample_rows)
    alone = run(plain, [replace(each, drafting=DraftParams(drafter=OFF)) for each in (dead, good)])
    engine, _ = engine_of(name)
    told = run(engine, [dead, good])
    for key, mine in told.items():
        assert (mine.token_ids, mine.finish_reason) == (alone[key].token_ids, alone[key].finish_reason)
    assert told["dead", 0].finish_reason == "error"
