"""What steps took, by a clock that counts its readings, and what drafted steps were worth."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest

from offramp.core import FULL_DEPTH, ExitParams, Request, SamplingParams, TokenTree
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.testing.costs import ScriptedCosts, each_row
from offramp.testing.drafters import ScriptedDrafter, oracle_chain, wrong_chain
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing

# Readings of a step's clock: begin, before and after drafting, before and after the executor, end.
DRAFT, RUN, STEP = 1, 1, 5
K = 4


def request(max_tokens: int, prompt_len: int = 1, exits: ExitParams = FULL_DEPTH) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Request(request_id="r", prompt_token_ids=[3] * prompt_len, params=params, seed=0, exits=exits)


def model() -> ScriptedModel:
    return ScriptedModel(mixing(), num_pages=8)


def counted(
    monkeypatch: pytest.MonkeyPatch, asked: Request, *, right: bool = True, drafter: ScriptedDrafter | None = None
) -> tuple[Statistics, ScriptedCosts]:
    """Statistics of one request whose drafts all stand, or none."""
    answers = {("r", 0): run_plain(model(), replace(asked, exits=FULL_DEPTH), max_context=64)["r", 0].token_ids}
    propose = oracle_chain(answers, K) if right else wrong_chain(answers, K, 260)
    costs = ScriptedCosts(each_row(0.1))
    drafter = drafter or ScriptedDrafter(propose, max_nodes=K)
    exits = ScriptedExits((1,), lambda key, output, layer: output % 2 == 0)
    engine = Engine(model(), max_context=64, drafter=drafter, costs=costs, exit_policies={"early": exits})
    monkeypatch.setattr(time, "perf_counter", count().__next__)
    run(engine, [asked])
    return engine.statistics, costs


def test_seconds_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics, costs = counted(monkeypatch, request(3 * (K + 1)))
    assert (statistics.draft_seconds, statistics.run_seconds, statistics.step_seconds) == (3 * DRAFT, 3 * RUN, 3 * STEP)
    assert (statistics.num_steps, costs.num_told) == (3, 3)


def test_plain_steps_would_not_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain step takes what the cost model says and what a step takes besides the executor and the drafter."""
    plain = 1.0 + STEP - RUN - DRAFT
    good, _ = counted(monkeypatch, request(3 * (K + 1)))
    assert (good.drafted_seconds, good.drafted_plain_seconds) == (3 * STEP, plain * 3 * (K + 1))
    assert good.estimated_speedup == pytest.approx(plain * (K + 1) / STEP)
    bad, _ = counted(monkeypatch, request(4), right=False)
    assert bad.estimated_speedup == pytest.approx(plain / STEP)


def test_only_steps_that_draft_and_read_no_prompt_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics, _ = counted(monkeypatch, request(2 * (K + 1) + 1, prompt_len=5))
    assert statistics.num_steps == 3  # the first reads the prompt, the last has nothing to draft
    assert statistics.drafted_seconds == STEP


def test_steps_with_exits_are_neither_told_nor_compared_nor_drafted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows need not run all layers; the step that reads the prompt does."""
    statistics, costs = counted(monkeypatch, request(9, exits=ExitParams(policy="early")))
    assert (costs.num_told, costs.num_asked, statistics.drafted_seconds) == (1, 0, 0.0)
    assert statistics.num_draft_tokens == 0


def test_a_step_is_told_what_the_one_before_took_unforeseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a step but its drafting, its rows' prediction, and what steps before took besides those two."""
    silent = ScriptedDrafter(lambda ask: TokenTree(), max_nodes=K)
    counted(monkeypatch, request(4), drafter=silent)
    besides = STEP - RUN - DRAFT
    loads = [ask.load for ask in silent.asks]
    assert [load.surprise for load in loads if load is not None] == [None, besides, pytest.approx(0.0)]
    assert [load.overhead for load in loads if load is not None] == [0.0, besides, besides]


def test_a_prompt_tells_nothing_of_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ScriptedDrafter(lambda ask: TokenTree(), max_nodes=K)
    counted(monkeypatch, request(3, prompt_len=5), drafter=silent)
    assert [ask.load.surprise for ask in silent.asks if ask.load is not None] == [None, None]


def test_no_speedup_before_any_draft() -> None:
    assert Statistics().estimated_speedup == 0.0
