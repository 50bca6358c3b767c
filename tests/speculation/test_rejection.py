"""Under the rejection verifier whole answers follow the model's law, whoever drafts and however long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from offramp.core import DraftAsk, Drafter, DraftParams, Request, SamplingParams, Sequence, TokenTree, Verdict
from offramp.draft import AUTO, DRAFT_MODEL, DRAFTERS, EAGLE, EARLY_EXIT, MAX_NODES, OFF, Drafters, make_drafter
from offramp.draft.early_plans import PaidExits
from offramp.draft.length import LENGTHS, LengthSettings
from offramp.draft.model_plans import PaidLength
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.draft.predictions import Predictions
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.engine.taps import Taps
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.sample.distribution import distribution
from offramp.sample.sampler import RowJob
from offramp.testing.batches import chain, pack_rows
from offramp.testing.costs import ScriptedCosts, each_row
from offramp.testing.running import run
from offramp.testing.toy import toy_config, toy_source
from tests.draft.weighted import LayeredCosts, cut_model, eagle_maker, early_maker, heads_of, model_maker
from tests.verify.chi_square import surprise_of

VOCAB, LENGTH = 4, 3
PROMPT = [0, 1, 2, 3, 1, 2, 3, 1, 2]
CONFIG = toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB)
SOURCE = toy_source(CONFIG, seed=4)
TARGET = build_executor(SOURCE, kv="f32", num_pages=24, threads=1)
PARAMS = SamplingParams(temperature=1.1, max_tokens=LENGTH, ignore_eos=True)
NAMES = [name for name in DRAFTERS if name not in (OFF, "reference")]


@cache
def law() -> dict[tuple[int, ...], float]:
    """Of all answers."""
    rows: dict[tuple[int, ...], np.ndarray] = {}
    for length in range(LENGTH):
        for output in product(range(VOCAB), repeat=length):
            batch = pack_rows(chain([*PROMPT, *output]), [range(2)])
            hidden = TARGET.run_layers(TARGET.embed(batch), batch, 0, CONFIG.num_layers)
            logits = TARGET.logits(hidden.take(np.array([len(batch) - 1], np.int32)))[0]
            rows[output] = distribution(logits, RowJob(params=PARAMS, seed=0, position=length, output_ids=output))
    return {
        answer: float(np.prod([rows[answer[:place]][answer[place]] for place in range(LENGTH)]))
        for answer in product(range(VOCAB), repeat=LENGTH)
    }


class Lying:
    """Says that all tokens were equally likely."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.max_nodes = drafter.max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        uniform = np.full(VOCAB, 1 / VOCAB)
        return [replace(tree, laws=(uniform,) * len(tree)) for tree in self._drafter.propose(asks)]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self._drafter.observe(ask, tree, verdict)

    def forget(self, sequence: Sequence) -> None:
        self._drafter.forget(sequence)


def plans_of(length: str, exits: tuple[int, ...] = ()) -> DraftPlans:
    if length != "goodput":
        return FixedPlans(exits, 2)
    costs = LayeredCosts(2, row=0.01)
    return PaidExits(costs, 2, exits, MAX_NODES) if exits else PaidLength(costs, 2, MAX_NODES)


def engine_of(name: str, length: str, lying: bool = False) -> Engine:
    draft_rows, taps = DraftRows(TARGET), Taps((1, 2), lambda request: True)
    makers = {
        EARLY_EXIT: early_maker(TARGET, heads_of(TARGET, (1,)), draft_rows, plans_of(length, (1,))),
        DRAFT_MODEL: model_maker(TARGET, cut_model(SOURCE, 1), plans_of(length)),
        EAGLE: eagle_maker(TARGET, taps, plans_of(length)),
    }
    costs = ScriptedCosts(each_row(0.01))
    predictions = Predictions(costs, 2) if length == "goodput" else None
    drafter = make_drafter(name, Drafters(makers=makers, predictions=predictions))
    return Engine(
        TARGET,
        max_context=64,
        drafter=Lying(drafter) if lying else drafter,
        lengths=LENGTHS[length](LengthSettings(costs=costs, num_layers=2)),
        draft_rows=draft_rows,
        taps=taps,
        sample_rows=sample_rows,
    )


def answers(engine: Engine, count: int, verifier: str = "rejection") -> list[tuple[int, ...]]:
    drafting = DraftParams(verifier=verifier)  # type: ignore[arg-type]
    asked = [
        Request(request_id=f"r{seed}", prompt_token_ids=PROMPT, params=PARAMS, seed=seed, drafting=drafting)
        for seed in range(count)
    ]
    told = run(engine, asked)
    return [tuple(told[each.request_id, 0].token_ids) for each in asked]


@pytest.mark.parametrize("length", ["fixed", "goodput"])
@pytest.mark.parametrize("name", [AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT])
def test_answers_follow_the_models_law(name: str, length: str) -> None:
    """Self-drafting has little to gain of two layers, so its trials are few."""
    engine = engine_of(name, length)
    assert surprise_of(Counter(answers(engine, 2000 if name == EARLY_EXIT else 500)), law()) < 0.999
    assert engine.statistics.num_draft_tokens > 100
    assert engine.statistics.num_accepted_tokens > 15


@pytest.mark.slow
@pytest.mark.parametrize("length", [*LENGTHS])
@pytest.mark.parametrize("name", [*NAMES, "model,suffix", "eagle,model"])
def test_many_answers_follow_the_models_law(name: str, length: str) -> None:
    assert surprise_of(Counter(answers(engine_of(name, length), 8000)), law()) < 0.9995


def test_a_drafter_that_lies_is_found_out() -> None:
    assert surprise_of(Counter(answers(engine_of(DRAFT_MODEL, "fixed", lying=True), 1500)), law()) > 0.9999


def test_free_draws_stand_more_often_than_shared_ones() -> None:
    """What the rule is for."""
    shares = []
    for verifier in ("exact", "rejection"):
        engine = engine_of(DRAFT_MODEL, "fixed")
        answers(engine, 400, verifier)
        shares.append(engine.statistics.num_accepted_tokens / engine.statistics.num_draft_tokens)
    assert shares[1] > shares[0]


def test_greedy_answers_are_those_of_plain_decoding() -> None:
    params = replace(PARAMS, temperature=0.0, max_tokens=20)
    requests = [
        Request(request_id=f"r{end}", prompt_token_ids=PROMPT[:end], params=params, seed=1, drafting=DraftParams())
        for end in range(1, 9)
    ]
    plain = run(Engine(TARGET, max_context=64), [replace(each, drafting=DraftParams(drafter=OFF)) for each in requests])
    for name in (AUTO, EAGLE, EARLY_EXIT, "model,suffix"):
        rejecting = [replace(each, drafting=DraftParams(verifier="rejection")) for each in requests]
        told = run(engine_of(name, "fixed"), rejecting)
        assert {key: mine.token_ids for key, mine in told.items()} == {k: mine.token_ids for k, mine in plain.items()}


def test_beside_exact_requests_each_gets_its_own() -> None:
    engine = engine_of(DRAFT_MODEL, "fixed")
    base = Request(request_id="r", prompt_token_ids=PROMPT, params=replace(PARAMS, max_tokens=20), seed=3)
    exact = replace(base, request_id="exact", drafting=DraftParams())
    other = replace(base, request_id="other", drafting=DraftParams(verifier="rejection"))
    plain = run(Engine(TARGET, max_context=64), [replace(base, drafting=DraftParams(drafter=OFF))])["r", 0]
    told = run(engine, [exact, other])
    assert told["exact", 0].token_ids == plain.token_ids
    assert told["other", 0].token_ids != plain.token_ids, "the same seed, another text"
