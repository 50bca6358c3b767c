"""Who drafts under `auto`: by what each is expected to bring, for each sequence and step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import (
    CostModel,
    DraftAsk,
    DraftParams,
    Request,
    SamplingParams,
    Sequence,
    SequenceKey,
    TokenTree,
    Verdict,
)
from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT, MAX_NODES, Drafters, make_drafter
from offramp.draft.auto import AutoDrafter
from offramp.draft.copying import CopyingDrafter
from offramp.draft.eagle import EagleDrafter
from offramp.draft.model import ModelDrafter
from offramp.draft.model_plans import ENOUGH, PaidLength
from offramp.draft.plans import DraftPlan, DraftPlans, FixedPlans, Rounds
from offramp.draft.predictions import REFRESH, Predictions
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.engine.taps import Taps
from offramp.native.sampling import sample_rows
from offramp.testing.costs import ScriptedCosts, each_row
from offramp.testing.drafters import ScriptedDrafter
from offramp.testing.running import run, run_plain
from tests.draft.weighted import eagle_maker, early_maker, model_maker
from tests.speculation.cases import draft_model, executor, exit_heads, prompts, steady_source

SURE = TokenTree.chain(range(100, 110), [0.97] * 10)
VAGUE = TokenTree.chain([100], [0.2])
SAID = TokenTree.chain([7, 8], [0.7, 0.6])


class Scripted(ScriptedDrafter):
    """Has weights, and says that drafting brings so much."""

    def __init__(self, tree: TokenTree, worth: float | Mapping[str, float]) -> None:
        super().__init__(lambda ask: tree, max_nodes=MAX_NODES)
        self.worth = worth
        self.failed = False
        self.shared: list[int] = []  # tokens that copying brought too

    @property
    def max_nodes(self) -> int:
        return 0 if self.failed else MAX_NODES

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        self.shared.append(num_tokens)

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        return self.worth[ask.key[0]] if isinstance(self.worth, Mapping) else self.worth


def ask(name: str = "r", max_nodes: int = 16) -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array([1, 2], np.int32), max_nodes, 16)


def auto(
    copied: TokenTree | Callable[[DraftAsk], TokenTree],
    *paid: Scripted,
    alone: Scripted | None = None,
    weighs: bool = True,
) -> AutoDrafter:
    script = (lambda _: copied) if isinstance(copied, TokenTree) else copied
    predictions = Predictions(ScriptedCosts(each_row(0.05)), 2) if weighs else None
    return AutoDrafter(ScriptedDrafter(script, max_nodes=MAX_NODES), paid, alone, predictions)


def test_a_long_sure_copy_needs_nobody_else() -> None:
    eagle = Scripted(SAID, 2.0)
    [tree] = auto(SURE, eagle).propose([ask()])
    assert tree.token_ids == SURE.token_ids
    assert eagle.asks == []


def test_what_copies_little_joins_what_the_best_drafter_says() -> None:
    eagle, model = Scripted(SAID, 2.0), Scripted(TokenTree.chain([9], [0.9]), 1.5)
    [tree] = auto(VAGUE, eagle, model).propose([ask()])
    assert set(tree.token_ids) == {100, 7, 8}
    assert (len(eagle.asks), len(model.asks)) == (1, 0)


def test_each_sequence_gets_its_own() -> None:
    """What is promised is the whole step's: three tokens and more."""
    eagle = Scripted(SAID, {"a": 6.0, "b": 3.1, "c": 3.6})
    model = Scripted(TokenTree.chain([9], [0.9]), {"a": 4.5, "b": 9.0, "c": 3.9})
    copied = lambda ask: SURE if ask.key[0] == "c" else VAGUE  # noqa: E731
    trees = auto(copied, eagle, model).propose([ask("a"), ask("b"), ask("c")])
    assert [set(tree.token_ids) for tree in trees] == [{100, 7, 8}, {100, 9}, set(SURE.token_ids)]


def test_a_drafter_in_doubt_is_asked_and_decides_itself_about_trials() -> None:
    eagle = Scripted(TokenTree(), 0.0)
    drafter = auto(SURE, eagle)
    assert drafter.propose([ask()])[0].token_ids == SURE.token_ids
    assert len(eagle.asks) == 1


def test_self_drafting_goes_alone() -> None:
    early, eagle = Scripted(TokenTree.chain([5, 6], [0.9, 0.9]), 3.0), Scripted(SAID, 2.0)
    [tree] = auto(VAGUE, eagle, alone=early).propose([ask()])
    assert tree.token_ids == (5, 6)
    assert eagle.asks == []
    trying = Scripted(SAID, 0.0)
    [tree] = auto(VAGUE, trying, alone=early).propose([ask()])
    assert set(tree.token_ids) == {100, 7, 8}, "others have their trials first"
    silent = Scripted(TokenTree(), 3.0)
    [tree] = auto(VAGUE, eagle, alone=silent).propose([ask()])
    assert tree.token_ids == VAGUE.token_ids, "where it says nothing, what was copied runs"


def test_one_that_failed_is_passed_over() -> None:
    eagle, model = Scripted(SAID, 9.0), Scripted(TokenTree.chain([9], [0.9]), 1.5)
    eagle.failed = True
    [tree] = auto(VAGUE, eagle, model).propose([ask()])
    assert set(tree.token_ids) == {100, 9}
    model.failed = True
    assert auto(VAGUE, eagle, model).propose([ask()])[0].token_ids == VAGUE.token_ids


def test_where_nothing_is_weighed_the_first_always_drafts() -> None:
    eagle, model, early = (Scripted(SAID, float("inf")) for _ in range(3))
    [tree] = auto(SURE, eagle, model, alone=early, weighs=False).propose([ask()])
    assert {7, 8, *SURE.token_ids} == set(tree.token_ids)
    assert (len(eagle.asks), len(model.asks), len(early.asks)) == (1, 0, 0)


def test_copies_that_never_stand_lose_their_word() -> None:
    """Scores are trusted as far as they came true, for this sequence and for later ones."""
    eagle = Scripted(SAID, 2.0)
    drafter = auto(SURE, eagle)
    for _ in range(40):
        [tree] = drafter.propose([ask()])
        drafter.observe(ask(), tree, Verdict(token_ids=(99,), accepted=(), rows=(0,)))
    assert 0 < len(eagle.asks) < 40, "they were preferred at first"
    eagle.asks.clear()
    drafter.propose([ask()])
    assert len(eagle.asks) == 1
    fresh, trusting = drafter.propose([ask("new")])[0], auto(SURE, eagle).propose([ask("new")])[0]
    copied = fresh.token_ids.index(SURE.token_ids[0])
    assert fresh.scores[copied] < trusting.scores[0]


def test_each_learns_from_its_own_proposal() -> None:
    eagle = Scripted(SAID, 2.0)
    copying = ScriptedDrafter(lambda _: VAGUE, max_nodes=16)
    drafter = AutoDrafter(copying, [eagle], None, Predictions(ScriptedCosts(each_row(0.05)), 2))
    [tree] = drafter.propose([ask()])
    verdict = Verdict(token_ids=(7, 3), accepted=(), rows=(0, 1))
    drafter.observe(ask(), tree, verdict)
    assert eagle.verdicts == [(SAID, verdict)]
    assert copying.verdicts == [(VAGUE, verdict)]
    request = Request(request_id="r", prompt_token_ids=[1], params=SamplingParams(), seed=1)
    drafter.forget(Sequence(request, 0, arrival=0, max_context=9))
    assert eagle.forgotten == copying.forgotten == [("r", 0)]


def test_what_copying_brings_anyway_is_no_gain_of_others() -> None:
    said = TokenTree.chain([100, 8], [0.7, 0.6])
    verdict = Verdict(token_ids=(100, 8, 3), accepted=(0, 1), rows=(0, 1, 2))
    for token, score, shared in ((100, 0.6, 1), (100, 0.02, 0), (101, 0.6, 0)):
        eagle = Scripted(said, 5.0)
        drafter = auto(TokenTree.chain([token], [score]), eagle)
        [tree] = drafter.propose([ask()])
        drafter.observe(ask(), tree, verdict)
        assert eagle.shared == [shared]


def test_bounds_hold() -> None:
    [tree] = auto(VAGUE, Scripted(SAID, 2.0)).propose([ask(max_nodes=2)])
    assert len(tree) == 2


class Planned(Scripted):
    """Drafts nothing, and says what its plans say that it would bring."""

    def __init__(self, costs: CostModel) -> None:
        super().__init__(TokenTree(), 0.0)
        self.plans = PaidLength(costs, 2, MAX_NODES)
        for _ in range(ENOUGH):
            self.plans.spent(DraftPlan((), 2), 1, 2, Rounds(count=1, rows=1, nodes=1, texts=1), 1e-6)

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        return self.plans.goodput(ask, num_alike)

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        self.plans.choose(asks)
        return super().propose(asks)


def test_a_drafter_that_is_never_the_best_still_learns_what_steps_cost() -> None:
    speed = [1.0]
    planned = Planned(ScriptedCosts(lambda num_rows: each_row(0.05)(num_rows) / speed[0]))
    drafter = auto(SURE, planned)
    before = planned.goodput(ask(), 1)
    assert before > 1.0
    drafter.propose([ask()])
    assert planned.asks == [], "the copy is the better one"
    speed[0] = 0.25
    for _ in range(REFRESH):
        drafter.propose([ask()])
    assert planned.asks == []
    assert planned.goodput(ask(), 1) == pytest.approx(before / 4, rel=1e-3)


def test_without_weights_it_copies() -> None:
    assert isinstance(Drafters().get(AUTO), CopyingDrafter)


@pytest.mark.parametrize("name", [EAGLE, DRAFT_MODEL, EARLY_EXIT])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_whoever_drafts_answers_are_those_of_plain_decoding(name: str, temperature: float) -> None:
    """The loudest is asked for most of them, the others now and then."""
    statistics = answered(name, temperature)
    assert statistics.num_accepted_tokens > 10
    assert statistics.num_draft_tokens > statistics.num_accepted_tokens


@pytest.mark.parametrize("name", [EAGLE, DRAFT_MODEL])
def test_a_drafter_that_breaks_at_work_is_dropped_and_requests_go_on(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = {EAGLE: EagleDrafter, DRAFT_MODEL: ModelDrafter}[name]
    working, calls = drafter._extend, []

    def breaking(*args: object) -> object:
        calls.append(args)
        if len(calls) > 6:
            raise MemoryError("none left")
        return working(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(drafter, "_extend", breaking)
    statistics = answered(name, 0.0)
    assert len(calls) == 7
    assert caplog.text.count("drafts no more: none left") == 1
    assert statistics.num_drafts > 7, "the others draft on"


class Loud(FixedPlans):
    """Says that it brings so much, and more at every fourth place."""

    def __init__(self, exits: Items[int], worth: float, phase: int) -> None:
        super().__init__(exits, 3)
        self._worth, self._phase = worth, phase

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        return self._worth + (len(ask.token_ids) % 4 == self._phase)


def answered(loudest: str, temperature: float) -> Statistics:
    model = executor("q8", "f16")
    draft_rows, taps = DraftRows(model), Taps((1, 2), lambda request: True)

    def plans(name: str, exits: tuple[int, ...] = ()) -> DraftPlans:
        return Loud(exits, 50.0 if name == loudest else 49.5, (EAGLE, DRAFT_MODEL, EARLY_EXIT).index(name))

    makers = {
        EARLY_EXIT: early_maker(model, exit_heads(model), draft_rows, plans(EARLY_EXIT, (1,))),
        DRAFT_MODEL: model_maker(model, draft_model(), plans(DRAFT_MODEL)),
        EAGLE: eagle_maker(model, taps, plans(EAGLE)),
    }
    predictions = Predictions(ScriptedCosts(each_row(0.02)), steady_source("q8").config.num_layers)
    engine = Engine(
        model,
        max_context=128,
        drafter=make_drafter(AUTO, Drafters(makers=makers, predictions=predictions)),
        draft_rows=draft_rows,
        taps=taps,
        sample_rows=sample_rows,
    )
    params = SamplingParams(max_tokens=24, temperature=temperature, logprobs=1)
    asked = [
        Request(request_id=f"r{index}", prompt_token_ids=list(prompt), params=params, seed=index)
        for index, prompt in enumerate(prompts(5, 5))
    ]
    told = run(engine, asked)
    for each in asked:
        plain = run_plain(model, replace(each, drafting=DraftParams(drafter="off")), max_context=128)
        mine = told[each.request_id, 0]
        assert (mine.token_ids, mine.logprobs) == (
            plain[each.request_id, 0].token_ids,
            plain[each.request_id, 0].logprobs,
        )
    engine.check_integrity()
    return engine.statistics
