"""What drafting that takes time is weighed against: lengths, exits, prices, trials."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import DraftAsk
from offramp.draft.early_plans import PaidExits
from offramp.draft.model_plans import PaidLength
from offramp.draft.payoff import best_payoff
from offramp.draft.plans import LONGEST_PATIENCE, PATIENCE, TRIAL_LEN, DraftPlan, DraftPlans, FixedPlans, Rounds
from tests.draft.weighted import LayeredCosts

LAYERS = 12
ASK = DraftAsk(("r", 0), 2, np.array([1, 2, 3], np.int32), max_nodes=16, max_depth=16)


def verify(count: int) -> float:
    return 1.0 + 0.02 * count


def test_the_length_is_the_best_of_all() -> None:
    for rate in (0.1, 0.5, 0.8, 0.95):
        for seconds in (0.05, 0.2, 0.5):
            paid = best_payoff(num_sequences=1, rate=rate, most=16, round_seconds=seconds, verify=verify)
            goodputs = [sum(rate**i for i in range(k + 1)) / (k * seconds + verify(k)) for k in range(17)]
            assert paid.num_tokens == int(np.argmax(goodputs)), (rate, seconds)
            assert paid.goodput == pytest.approx(max(goodputs))


def test_prices_are_what_the_time_would_bring_otherwise() -> None:
    paid = best_payoff(num_sequences=1, rate=0.8, most=16, round_seconds=0.1, verify=verify)
    assert paid.verify_price == pytest.approx(paid.goodput * 0.02)
    assert paid.draft_price == pytest.approx(paid.goodput * 0.12)
    assert 0.8**paid.num_tokens >= paid.draft_price > 0.8 ** (paid.num_tokens + 1)


def test_a_step_of_the_costs_behind_the_best_length_is_no_price_of_it() -> None:
    steps = [1.0, 1.02, 1.04, 1.06, 1.8, 1.82]
    paid = best_payoff(num_sequences=1, rate=0.9, most=4, round_seconds=0.2, verify=steps.__getitem__)
    assert paid.num_tokens == 3
    assert paid.draft_price < 0.9**3


def test_drafts_that_cost_as_much_as_steps_never_pay() -> None:
    assert best_payoff(num_sequences=1, rate=0.99, most=16, round_seconds=1.0, verify=verify).num_tokens == 0


def plans_through(exits: tuple[int, ...]) -> PaidExits:
    return PaidExits(LayeredCosts(LAYERS), LAYERS, exits, 16)


def taught(plans: DraftPlans, rates: dict[tuple[int, ...], float]) -> None:
    for exits, rate in rates.items():
        for turn in range(100):
            plans.learn(DraftPlan(exits, 1), True, int(turn % 100 < 100 * rate), 1)


def test_the_exit_that_pays_most_is_taken() -> None:
    plans = plans_through((3, 6, 9))
    taught(plans, {(3,): 0.05, (6,): 0.9, (9,): 0.95, (3, 6, 9): 0.3})
    plan = plans.plan([ASK])
    assert plan.exits == (6,)
    assert plan.max_len >= 1
    assert 0 < plan.keep_price < plan.draft_price < 1
    shallow = plans_through((3, 6, 9))
    taught(shallow, {(3,): 0.9, (6,): 0.9, (9,): 0.9, (3, 6, 9): 0.9})
    assert shallow.plan([ASK]).exits == (3,)


def test_where_none_pays_trials_grow_seldom() -> None:
    plans = plans_through((6,))
    taught(plans, {(6,): 0.0})
    trials = [turn for turn in range(4000) if plans.plan([ASK]).max_len]
    gaps = np.diff([-1, *trials]).tolist()
    assert gaps[:3] == [PATIENCE, 2 * PATIENCE, 4 * PATIENCE]
    assert max(gaps) == LONGEST_PATIENCE
    assert plans.plan([]).max_len == 0


def test_drafting_slower_than_predicted_pays_less() -> None:
    plans = plans_through((3,))
    taught(plans, {(3,): 0.7})
    before = plans.plan([ASK]).max_len
    for _ in range(100):
        plans.spent(DraftPlan((3,), 4), 1, 3, Rounds(count=4, layers=12, heads=4, rows=4), 100.0)
    assert plans.plan([ASK]).max_len < before


def test_greedy_and_sampled_sequences_are_kept_apart() -> None:
    plans = plans_through((3,))
    taught(plans, {(3,): 0.0})
    assert plans.plan([ASK]).max_len == 0
    sampled = DraftAsk(("s", 0), 2, ASK.token_ids, max_nodes=16, max_depth=16, greedy=False)
    assert plans.plan([sampled]).max_len > 0


def test_a_draft_model_is_tried_first_and_then_as_long_as_it_pays() -> None:
    plans = PaidLength(LayeredCosts(LAYERS), LAYERS, 16)
    assert plans.plan([ASK]).max_len == TRIAL_LEN
    plans.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2), 0.1)
    taught(plans, {(): 0.9})
    assert plans.plan([ASK]).max_len > 5
    for _ in range(3):
        taught(plans, {(): 0.0})
    assert plans.plan([ASK]).max_len == 0
    assert plans.plan([ASK, ASK]).max_len == TRIAL_LEN, "what two sequences take is not known"


def test_fixed_plans_never_change() -> None:
    plans = FixedPlans((2, 4), 5)
    assert plans.plan([ASK]) == plans.plan([]) == DraftPlan((2, 4), 5, 0.0, 0.5)
