"""What drafters with weights tell their plans of: rounds that ran and what became of drafts, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from offramp.core import DraftAsk, Drafter, Request, SamplingParams
from offramp.draft import DRAFT_MODEL, EAGLE, EARLY_EXIT
from offramp.draft.plans import Chosen, DraftPlan, FixedPlans, Judged, Rounds
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.engine.taps import Taps
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.running import run
from offramp.testing.toy import toy_config, toy_source
from tests.draft.weighted import cut_model, eagle_maker, early_maker, heads_of, model_maker

CONFIG = toy_config(num_layers=3, hidden_size=64, num_heads=4, num_kv_heads=2, vocab_size=250)
SOURCE = toy_source(CONFIG, seed=4)
TARGET = build_executor(SOURCE, kv="f32", num_pages=64, threads=1)
MOST = 3
HOPELESS = 0.999
"""A price that no token is worth."""


@dataclass
class Told(FixedPlans):
    """Fixed plans that write down what they are told. Tokens less likely to stand than `price` are not kept."""

    price: float = 0.0
    rounds: list[Rounds] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__((2,), MOST)

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        chosen = super().choose(asks)
        return replace(chosen, plan=replace(chosen.plan, keep_price=self.price))

    def spent(self, plan: DraftPlan, num_sequences: int, context: int, rounds: Rounds, seconds: float) -> None:
        if rounds.count:
            self.rounds.append(rounds)

    def learn(self, plan: DraftPlan, ask: DraftAsk, judged: Judged) -> None:
        self.judged.append(judged)


def told_of(name: str, price: float = 0.0, num_texts: int = 1) -> Told:
    plans = Told(price=price)
    draft_rows, taps = DraftRows(TARGET), Taps((1, 2), lambda request: True)
    makers: dict[str, Callable[[], Drafter]] = {
        EARLY_EXIT: early_maker(TARGET, heads_of(TARGET, (2,)), draft_rows, plans),
        DRAFT_MODEL: model_maker(TARGET, cut_model(SOURCE, 1), plans),
        EAGLE: eagle_maker(TARGET, taps, plans),
    }
    engine = Engine(
        TARGET, max_context=64, drafter=makers[name](), draft_rows=draft_rows, taps=taps, sample_rows=sample_rows
    )
    asked = [
        Request(
            request_id=f"r{text}",
            prompt_token_ids=[(7 * text + 5 * place) % 240 for place in range(9)],
            params=SamplingParams(max_tokens=30),
            seed=2,
        )
        for text in range(num_texts)
    ]
    run(engine, asked)
    return plans


@pytest.mark.parametrize("name", [DRAFT_MODEL, EAGLE, EARLY_EXIT])
def test_rounds_that_are_refused_by_all_count_like_others(name: str) -> None:
    """They took their time, so they are to be priced."""
    told = told_of(name, HOPELESS, num_texts=2)
    assert len(told.rounds) > 10
    for rounds in told.rounds:
        assert (rounds.count, rounds.nodes) == (1, 0)
        assert 1 <= rounds.texts == rounds.rows <= 2
    assert max(rounds.texts for rounds in told.rounds) == 2
    assert set(told.judged) == {Judged(0, 1, 0)}


@pytest.mark.parametrize("name", [DRAFT_MODEL, EAGLE, EARLY_EXIT])
def test_rows_are_those_that_ran(name: str) -> None:
    told = told_of(name)
    full = [rounds for rounds in told.rounds if rounds.count == MOST]
    assert len(full) > 5
    for rounds in full:
        assert (rounds.texts, rounds.rows, rounds.nodes) == (1, MOST, MOST)


@pytest.mark.parametrize("name", [DRAFT_MODEL, EAGLE, EARLY_EXIT])
def test_every_draft_is_judged_once(name: str) -> None:
    told = told_of(name, num_texts=3)
    assert len(told.judged) == sum(rounds.texts for rounds in told.rounds)
    for judged in told.judged:
        assert 0 <= judged.brought <= judged.stood <= judged.tested <= MOST
    assert any(judged.stood < judged.tested for judged in told.judged)
