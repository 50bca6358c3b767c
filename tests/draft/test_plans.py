"""What drafting that takes time is weighed against: lengths, exits, prices, trials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.core import DraftAsk, StepLoad
from offramp.draft.early_plans import PaidExits
from offramp.draft.model_plans import ENOUGH, PaidLength
from offramp.draft.paid_plans import TRIAL_LEN
from offramp.draft.payoff import Payoff, best_payoff
from offramp.draft.plans import NO_PLAN, DraftPlan, DraftPlans, FixedPlans, Judged, Rounds
from offramp.draft.trials import PATIENCE
from tests.draft.weighted import LayeredCosts

LAYERS = 12
ASK = DraftAsk(("r", 0), 2, np.array([1, 2, 3], np.int32), max_nodes=16, max_depth=16)


def judged(stood: int) -> Judged:
    """A draft of one token."""
    return Judged(stood, tested=1, brought=stood)


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


def taught(plans: DraftPlans, rates: dict[tuple[int, ...], float], ask: DraftAsk = ASK) -> None:
    for exits, rate in rates.items():
        for turn in range(100):
            plans.learn(DraftPlan(exits, 1), ask, judged(int(turn % 100 < 100 * rate)))


def plan_of(plans: DraftPlans, *asks: DraftAsk) -> DraftPlan:
    """What a step with these asks does."""
    chosen = plans.choose(asks)
    return chosen.plan if chosen.asks else NO_PLAN


def paid_length(rate: float, *, seconds: float = 0.05, ask: DraftAsk = ASK) -> PaidLength:
    """Whose rounds take so long, for one sequence."""
    plans = PaidLength(LayeredCosts(LAYERS), LAYERS, 16)
    for _ in range(ENOUGH):
        plans.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2, nodes=2, texts=1), 2 * seconds)
    taught(plans, {(): rate}, ask)
    return plans


def test_the_exit_that_pays_most_is_taken() -> None:
    plans = plans_through((3, 6, 9))
    taught(plans, {(3,): 0.05, (6,): 0.9, (9,): 0.95, (3, 6, 9): 0.3})
    plan = plan_of(plans, ASK)
    assert plan.exits == (6,)
    assert plan.max_len >= 1
    assert 0 < plan.keep_price < plan.draft_price < 1
    shallow = plans_through((3, 6, 9))
    taught(shallow, {(3,): 0.9, (6,): 0.9, (9,): 0.9, (3, 6, 9): 0.9})
    assert plan_of(shallow, ASK).exits == (3,)


def test_drafting_slower_than_predicted_pays_less() -> None:
    plans = plans_through((3,))
    taught(plans, {(3,): 0.9})
    before = plan_of(plans, ASK).max_len
    for _ in range(100):
        plans.spent(DraftPlan((3,), 4), 1, 3, Rounds(count=4, layers=12, heads=4, rows=4, texts=1), 100.0)
    assert plan_of(plans, ASK).max_len < before


def test_greedy_and_sampled_sequences_are_kept_apart() -> None:
    plans = plans_through((3,))
    taught(plans, {(3,): 0.0})
    assert not plan_of(plans, ASK).pays
    sampled = DraftAsk(("s", 0), 2, ASK.token_ids, max_nodes=16, max_depth=16, greedy=False)
    assert plan_of(plans, sampled).pays


def test_a_draft_model_is_tried_first_and_then_as_long_as_it_pays() -> None:
    plans = PaidLength(LayeredCosts(LAYERS), LAYERS, 16)
    for _ in range(ENOUGH):
        assert plan_of(plans, ASK) == DraftPlan((), TRIAL_LEN)
        assert plans.goodput(ASK, 1) == 0.0
        plans.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2, nodes=2, texts=1), 0.1)
    taught(plans, {(): 0.9})
    assert plan_of(plans, ASK).max_len > 5
    for _ in range(3):
        taught(plans, {(): 0.0})
    assert plan_of(plans, ASK).max_len == 0
    assert plan_of(paid_length(0.9), ASK, ASK) == DraftPlan((), TRIAL_LEN), "what two sequences take is not known"


def test_one_slow_round_changes_nothing() -> None:
    plans = paid_length(0.9)
    before = plan_of(plans, ASK).max_len
    plans.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2, nodes=2, texts=1), 100.0)
    assert plan_of(plans, ASK).max_len == before > 5


def test_rounds_that_bring_few_tokens_leave_less_to_verify() -> None:
    few, many = paid_length(0.7), paid_length(0.7)
    for _ in range(20):
        few.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2, nodes=0, texts=1), 0.1)
        many.spent(DraftPlan((), 2), 1, 3, Rounds(count=2, rows=2, nodes=4, texts=1), 0.1)
    assert few.goodput(ASK, 1) > many.goodput(ASK, 1)


def test_what_runs_beside_makes_drafts_worth_less() -> None:
    plans = paid_length(0.7)
    alone = replace(ASK, load=StepLoad(1, 1, 3, 0.0))
    assert plan_of(plans, alone) == plan_of(plans, ASK)
    crowded = replace(ASK, load=StepLoad(16, 16, 3, 0.0))
    assert plan_of(plans, crowded).max_len < plan_of(plans, alone).max_len
    idle = replace(ASK, load=StepLoad(1, 1, 3, 5.0))
    assert plan_of(plans, idle).max_len > plan_of(plans, alone).max_len, "a step's overhead is paid once"


def test_a_gain_that_is_too_small_is_none() -> None:
    gains = [paid.num_tokens for paid in (_paid(0.0), _paid(0.2), _paid(0.7))]
    assert gains[0] == gains[1] > 0
    assert gains[2] == 0


def _paid(least: float) -> Payoff:
    return best_payoff(num_sequences=1, rate=0.6, most=16, round_seconds=0.1, verify=verify, least_gain=least)


def test_a_sequence_whose_drafts_fall_is_left_alone_beside_others() -> None:
    """And asked now and then."""
    plans, hopeless = beside_a_hopeless_one(timed=(1, 2))
    assert plans.goodput(ASK, 1) > 0.0
    assert plans.goodput(hopeless, 1) == 0.0
    asked: list[int] = []
    for turn in range(1, 4 * PATIENCE):
        chosen = plans.choose([ASK, hopeless])
        assert ASK in chosen.asks
        plans.learn(chosen.plan, ASK, judged(1))
        if hopeless in chosen.asks:
            asked.append(turn)
            plans.learn(chosen.plan, hopeless, judged(0))
    assert asked[0] == PATIENCE + 1
    assert len(asked) < PATIENCE
    assert max(np.diff(asked)) > PATIENCE
    plans.forget(hopeless.key)
    assert hopeless in plans.choose([ASK, hopeless]).asks, "of a new sequence nothing is known"


def test_where_drafts_pay_for_so_few_that_their_time_is_not_known_they_are_tried() -> None:
    """Two were timed together; of them one is left that drafts pay for."""
    plans, hopeless = beside_a_hopeless_one(timed=(2,))
    chosen = plans.choose([ASK, hopeless])
    assert chosen.asks == [ASK]
    assert chosen.plan == DraftPlan((), TRIAL_LEN)


def beside_a_hopeless_one(*, timed: tuple[int, ...]) -> tuple[PaidLength, DraftAsk]:
    """Drafts of `ASK` stand, those of the other have not; what so many take together was seen."""
    plans, hopeless = PaidLength(LayeredCosts(LAYERS), LAYERS, 16), replace(ASK, key=("h", 0))
    for count in timed:
        for _ in range(ENOUGH):
            plans.spent(DraftPlan((), 2), count, 3, Rounds(count=2, rows=2 * count, nodes=2 * count, texts=count), 0.4)
    plan = plans.choose([ASK, hopeless]).plan
    for _ in range(20):
        plans.learn(plan, hopeless, judged(0))
        plans.learn(plan, ASK, judged(1))
    return plans, hopeless


def test_fixed_plans_never_change() -> None:
    plans = FixedPlans((2, 4), 5)
    assert plan_of(plans, ASK) == DraftPlan((2, 4), 5, 0.0, 0.5)
    assert plans.goodput(ASK, 3) == float("inf")
