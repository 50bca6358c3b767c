"""As much as pays by the predicted costs: more where rows are cheap and drafts stand, none where they don't."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from types import FunctionType, ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.core import DraftAsk, StepLoad, TokenTree, Verdict
from offramp.draft.chain import reaches
from offramp.draft.length.goodput import (
    EXPLORE,
    EXPLORE_CHANCE,
    EXPLORE_NODES,
    MAX_PAUSE,
    MIN_CHANCE,
    OFF_AFTER,
    PATIENCE,
    GoodputLength,
)
from offramp.draft.trust import MOST_BIAS, Trust
from offramp.testing.costs import ScriptedCosts, each_row

TEXT = np.array([0], np.int32)
DEAR, CHEAP, FREE = each_row(1.0), each_row(0.05), each_row(0.0)
MEASURED = ((1, 4.6), (2, 5.3), (4, 6.6), (8, 9.6), (16, 15.9), (32, 28.5), (64, 55.0), (512, 440.0))
"""Rows and milliseconds of a step, as a small model takes them on two cores: weights bound one row, arithmetic many."""


def by_table(num_rows: int) -> float:
    rows, milliseconds = zip(*MEASURED, strict=True)
    return float(np.interp(num_rows, rows, milliseconds))


def controller(seconds: Callable[[int], float]) -> GoodputLength:
    return GoodputLength(ScriptedCosts(seconds), num_layers=2)


def ask(name: str = "r") -> DraftAsk:
    return DraftAsk((name, 0), 1, TEXT, 64, 64)


def load(num_seqs: int = 1) -> StepLoad:
    return StepLoad(num_rows=num_seqs, num_head_rows=num_seqs, context=100, overhead=0.0)


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


def chain(score: float | None, length: int = 16) -> TokenTree:
    return TokenTree.chain(range(length), () if score is None else [score] * length)


def chosen(lengths: GoodputLength, *trees: TokenTree) -> list[TokenTree]:
    """One step of as many sequences, none of which pauses."""
    asks = [ask(f"r{index}") for index in range(len(trees))]
    assert list(lengths.wants(asks)) == asks
    return list(lengths.choose(asks, trees, load(len(trees))))


def step(lengths: GoodputLength, tree: TokenTree, follows: Callable[[int], bool], name: str = "r") -> int | None:
    """One step of one sequence as the engine runs it; returns the nodes that ran, None when it was not asked.

    `follows` tells of each depth whether plain decoding draws the chain's token there.
    """
    if not lengths.wants([ask(name)]):
        return None
    [part] = lengths.choose([ask(name)], [tree], load())
    good = next((depth for depth in range(len(part)) if not follows(depth)), None)
    if good is None:  # all that ran stood; the bonus token may be the next of the proposal
        token = len(part) if len(part) < len(tree) and follows(len(part)) else 99
        lengths.observe(ask(name), tree, told(*range(len(part)), token))
    else:
        lengths.observe(ask(name), tree, told(*range(good), 99))
    return len(part)


def always(depth: int) -> bool:
    return True


def never(depth: int) -> bool:
    return False


@pytest.mark.parametrize("score", [None, 0.3, 0.99, 1.0])
def test_nothing_runs_where_time_grows_with_the_rows(score: float | None) -> None:
    assert chosen(controller(DEAR), chain(score)) == [TokenTree()]


@pytest.mark.parametrize("num_seqs", [1, 5])
def test_everything_with_a_chance_runs_where_rows_are_free(num_seqs: int) -> None:
    proposal = chain(0.9)
    assert chosen(controller(FREE), *[proposal] * num_seqs) == [proposal] * num_seqs
    hopeless = TokenTree((1, 2, 3), (-1, -1, 1), (0.5, MIN_CHANCE * 0.9, 1.0))
    assert chosen(controller(FREE), hopeless)[0].token_ids == (1,)


def test_dearer_rows_never_draft_more_and_likelier_tokens_never_less() -> None:
    shares = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0]
    scores = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]
    lengths = np.array([[len(chosen(controller(each_row(c)), chain(s))[0]) for s in scores] for c in shares])
    assert (np.diff(lengths, axis=0) <= 0).all()
    assert (np.diff(lengths, axis=1) >= 0).all()
    assert len(np.unique(lengths)) > 6


def test_time_besides_the_model_makes_drafts_worth_more() -> None:
    lengths = controller(each_row(0.6))
    parts = [lengths.choose(lengths.wants([ask()]), [chain(0.7)], StepLoad(1, 1, 9, s))[0] for s in (0.0, 3.0)]
    assert len(parts[0]) < len(parts[1])


def test_more_sequences_draft_less() -> None:
    """A row is the dearer the more there are; the longest drafts are those of a sequence alone."""
    mean = [sum(map(len, chosen(controller(by_table), *[chain(0.75)] * n))) / n for n in (1, 2, 4, 8, 16, 32)]
    assert mean == sorted(mean, reverse=True)
    assert mean[0] > 2.5 * mean[-1]
    assert mean[0] >= 3


def test_of_several_sequences_the_likelier_ones_draft() -> None:
    sure, unsure = chosen(controller(each_row(0.3)), chain(0.95), chain(0.3))
    assert (len(sure) > 3, len(unsure)) == (True, 0)


trees = st.integers(0, 4).flatmap(
    lambda size: st.builds(
        lambda parents, scores: TokenTree(tuple(range(size)), parents, tuple(scores)),
        st.tuples(*(st.integers(-1, node - 1) for node in range(size))),
        st.lists(st.floats(0.5, 1.0), min_size=size, max_size=size),
    )
)


@settings(max_examples=40, deadline=None)
@given(proposals=st.lists(trees, min_size=1, max_size=2), share=st.floats(0.01, 1.0), bend=st.floats(0.0, 0.2))
def test_no_other_choice_yields_more_a_second(proposals: list[TokenTree], share: float, bend: float) -> None:
    """Against every set of nodes that holds their ancestors; `keep` itself raises where an ancestor is missing."""

    def seconds(num_rows: int) -> float:
        return 1.0 + share * (num_rows - 1) + bend * (num_rows - 1) ** 2

    chances = [reaches(tree) for tree in proposals]  # all above MIN_CHANCE

    def goodput(picked: Sequence[list[int]]) -> float:
        stand = sum(chance[node] for chance, nodes in zip(chances, picked, strict=True) for node in nodes)
        return (len(proposals) + stand) / seconds(len(proposals) + sum(map(len, picked)))

    parts = chosen(controller(seconds), *proposals)
    best = max(goodput(picked) for picked in product(*map(closed_sets, proposals)))
    assert goodput([list(part.token_ids) for part in parts]) == pytest.approx(best)


def closed_sets(tree: TokenTree) -> list[list[int]]:
    sets: list[list[int]] = [[]]
    for node, parent in enumerate(tree.parents):
        sets += [[*nodes, node] for nodes in sets if parent < 0 or parent in nodes]
    return sets


@pytest.mark.parametrize("score", [None, 0.9])
def test_a_drafter_that_lies_is_found_out_and_not_listened_to(score: float | None) -> None:
    lengths = controller(each_row(0.2))
    ran = [step(lengths, chain(score), never) for _ in range(400)]
    if score is not None:
        assert ran[0], "believed at first"
    settled = [count for count in ran[60:] if count]
    assert len(settled) <= len(ran[60:]) // EXPLORE + 1
    assert sum(settled) <= EXPLORE_NODES * len(settled)


@pytest.mark.parametrize("score", [None, 0.9])
def test_one_lying_sequence_does_not_spoil_another(score: float | None) -> None:
    lengths = controller(each_row(0.2))
    for _ in range(100):
        step(lengths, chain(score), never, "liar")
        good = step(lengths, chain(score), always, "honest")
    assert good is not None
    assert good > 3
    assert not step(lengths, chain(score), never, "liar")


def test_explores_after_so_many_steps_and_not_before() -> None:
    lengths = controller(DEAR)
    asks = [ask()]
    ran = [len(lengths.choose(asks, [chain(0.9)], load())[0]) for _ in range(3 * EXPLORE + 3) if lengths.wants(asks)]
    tried = [index for index, count in enumerate(ran) if count]
    assert tried[0] == EXPLORE
    assert set(np.diff(tried)) == {EXPLORE + 1}
    assert {ran[index] for index in tried} == {EXPLORE_NODES}


def test_a_step_with_drafts_puts_exploring_off() -> None:
    lengths = controller(each_row(0.5))
    scores = [*[0.4] * EXPLORE, 0.9, *[0.4] * (EXPLORE + 1)]
    ran = []
    for score in scores:
        lengths.forget(("r0", 0))
        ran.append(len(chosen(lengths, chain(score))[0]))
    assert [index for index, count in enumerate(ran) if count] == [EXPLORE, 2 * EXPLORE + 1]


def test_the_hopeless_is_never_explored() -> None:
    lengths = controller(DEAR)
    for _ in range(3 * EXPLORE):
        lengths.forget(("r0", 0))
        assert chosen(lengths, chain(EXPLORE_CHANCE * 0.99)) == [TokenTree()]


@pytest.mark.parametrize("score", [None, 0.9])
def test_wakes_up_when_drafts_stand_again(score: float | None) -> None:
    lengths = controller(each_row(0.2))
    for _ in range(500):
        step(lengths, chain(score), never)
    ran = [step(lengths, chain(score), always) for _ in range(60 * MAX_PAUSE)]
    first = next(index for index, count in enumerate(ran) if count)
    assert first < 40 * MAX_PAUSE
    assert min(count or 0 for count in ran[-20:]) >= 4, "and asks at every step again"


@pytest.mark.parametrize("proposal", [chain(0.9), TokenTree()], ids=["lies", "nothing"])
def test_pauses_grow_slowly_and_stay_short(proposal: TokenTree) -> None:
    lengths = controller(DEAR)
    asked = [step(lengths, proposal, never) is not None for _ in range(1000)]
    gaps = np.diff([index for index, wanted in enumerate(asked) if wanted])
    assert (gaps[: PATIENCE - 1] == 1).all(), "patient at first"
    assert set(gaps) == set(range(1, MAX_PAUSE + 1))
    assert np.mean(gaps[-50:]) > MAX_PAUSE - 0.5


def test_a_sequence_that_is_forgotten_starts_as_any_other() -> None:
    lengths = controller(each_row(0.2))
    for _ in range(300):
        step(lengths, chain(0.9), never)
    lengths.forget(("r", 0))
    lengths.forget(("never seen", 0))
    [again] = lengths.choose(lengths.wants([ask("r")]), [chain(0.9)], load())
    [other] = lengths.choose(lengths.wants([ask("s")]), [chain(0.9)], load())
    assert len(again) == len(other)


def test_what_sampled_sequences_teach_is_for_sampled_ones() -> None:
    lengths = controller(each_row(0.2))
    sampled, other, greedy = replace(ask("r"), greedy=False), replace(ask("s"), greedy=False), ask("t")
    asks = [sampled, greedy]
    assert list(lengths.wants(asks)) == asks
    fresh = len(lengths.choose([greedy], [chain(0.9)], load())[0])
    for _ in range(100):
        lengths.observe(sampled, chain(0.9), told(99))
    assert list(lengths.wants([other])) == [other]
    assert len(lengths.choose([other], [chain(0.9)], load())[0]) == 0, "another sampled one begins with doubts"
    assert len(lengths.choose([greedy], [chain(0.9)], load())[0]) == fresh > 0


def num_reachable(root: object) -> int:
    """Objects that something holds, directly or not."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) not in seen and not isinstance(item, (type, ModuleType, FunctionType)):
            seen.add(id(item))
            waiting += gc.get_referents(item)
    return len(seen)


def test_nothing_grows_over_ten_thousand_sequences() -> None:
    lengths = controller(CHEAP)

    def answer(name: str) -> None:
        tree = chain(0.9 if name.endswith("7") else None, 4)
        step(lengths, tree, always, name)
        step(lengths, tree, never, name)
        lengths.forget((name, 0))

    for index in range(100):
        answer(f"first {index}")
    held = num_reachable(lengths)
    for index in range(10_000):
        answer(f"r{index}")
    assert num_reachable(lengths) <= held + 50


# a = 0.9: cost of a drafted token, best length, speed-up: (1 - a^(k + 1)) / ((1 - a) (k c + 1))
TABLE = [(0.02, 19, 6.37), (0.1, 10, 3.43), (0.25, 6, 2.09), (0.5, 3, 1.376)]
RATE = 0.9


@pytest.mark.parametrize(("share", "best", "speedup"), TABLE)
def test_picks_the_best_length_of_the_formula(share: float, best: int, speedup: float) -> None:
    [part] = chosen(controller(each_row(share)), chain(RATE, 24))
    assert len(part) == best
    tokens = (1 - RATE ** (best + 1)) / (1 - RATE)
    assert tokens / (1 + best * share) == pytest.approx(speedup, rel=2e-3)
    numbers = np.random.default_rng(7).random((20_000, best))
    drawn = 1 + np.cumprod(numbers < RATE, axis=1).sum(axis=1)
    assert abs(drawn.mean() - tokens) < 3.3 * drawn.std() / np.sqrt(len(drawn))


@pytest.mark.parametrize("score", [RATE, 0.6, None], ids=["honest", "modest", "none"])
@pytest.mark.parametrize(("share", "best", "speedup"), TABLE)
def test_learns_to_gain_what_the_formula_promises(share: float, best: int, speedup: float, score: float | None) -> None:
    """Also where the drafter's scores are too low, or missing: what became of its proposals corrects them."""
    rng = random.Random(5)
    lengths = controller(each_row(share))
    tokens = seconds = 0.0
    for turn in range(1200):
        stand = next(depth for depth in range(99) if rng.random() >= RATE)
        ran = step(lengths, chain(score, 24), lambda depth, stand=stand: depth < stand) or 0  # type: ignore[misc]
        if turn >= 200:
            tokens += 1 + min(stand, ran)
            seconds += 1 + share * ran
    assert tokens / seconds == pytest.approx(speedup, rel=0.1)


def test_one_line_tells_that_drafts_went_off(caplog: pytest.LogCaptureFixture) -> None:
    lengths = controller(DEAR)
    with caplog.at_level(logging.INFO, logger="offramp"):
        for turn in range(3 * OFF_AFTER):
            lengths.forget(("r0", 0))
            chosen(lengths, chain(0.9))
            assert len(caplog.records) == (turn >= OFF_AFTER - 1)


def test_trust_learns_the_odds_at_which_scores_are_right_on_average() -> None:
    rng = random.Random(3)
    trust = Trust()
    for _ in range(3000):
        score = rng.choice([0.3, 0.6, 0.9])
        odds = score / (1 - score) / 4
        trust.learn(rng.random() < odds / (1 + odds), score)
    assert trust.factor == pytest.approx(1 / 4, rel=0.35)
    assert trust.corrected(0.0) == 0.0
    assert trust.corrected(1.0) == 1.0


def test_trust_stays_within_bounds_whatever_happens() -> None:
    for stood, score in [(True, 1e-9), (False, 1.0), (False, 1.0 - 1e-12)]:
        trust = Trust()
        for _ in range(1000):
            trust.learn(stood, score)
            assert 0.0 <= trust.corrected(0.5) <= 1.0
            assert abs(trust.bias) <= MOST_BIAS
