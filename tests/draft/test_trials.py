"""Whose drafting goes on: plans at work in a world where what steps really bring and take is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from offramp.core import DraftAsk, StepLoad
from offramp.draft.model_plans import ENOUGH, PaidLength
from offramp.draft.plans import DraftPlan, Judged, Rounds
from offramp.draft.trials import (
    GAIN_SHARE,
    LONGEST_PATIENCE,
    MOST_LOST,
    MOST_SAVED,
    PATIENCE,
    SHARE,
    WARM_UP,
    Allowance,
    TextTrial,
)
from offramp.testing.costs import ScriptedCosts, each_row

TOKENS = np.array([1, 2, 3], np.int32)
ROW, ROUND = 0.02, 0.03
"""What a row more takes, and a round; a plain step takes 1."""


@dataclass(slots=True)
class World:
    """Steps of some texts. Drafts stand at `rate`; a drafted step takes `hidden` that no prediction knows of."""

    rate: Callable[[int], float]
    hidden: float = 0.0
    streams: int = 1
    told: bool = True  # plans hear what steps took
    slow: Callable[[int], float] = lambda step: 1.0  # what rounds and steps take, of the usual
    plans: PaidLength = field(default_factory=lambda: PaidLength(ScriptedCosts(each_row(ROW)), 1, 1))
    drafted: list[int] = field(default_factory=list)  # steps, once for each text
    gained: float = 0.0  # tokens, less the time of them in plain steps
    _random: Random = field(default_factory=lambda: Random(7))
    _surprise: float | None = None

    def live(self, num_steps: int, first: int = 0, text: str = "t") -> World:
        """So many steps of each text."""
        for step in range(first, first + num_steps):
            self._step(step, text)
        return self

    def _step(self, step: int, text: str) -> None:
        load = StepLoad(self.streams, self.streams, 3, 0.0, self._surprise if self.told else None)
        asks = [DraftAsk((text, place), 1, TOKENS, 16, 16, load=load) for place in range(self.streams)]
        chosen = self.plans.choose(asks)
        self._surprise, count = 0.0, len(chosen.asks)
        if not count:
            return
        rounds = chosen.plan.max_len
        nodes, slow = count * rounds, self.slow(step)
        self.plans.spent(
            chosen.plan, count, 3, Rounds(rounds, rows=nodes, nodes=nodes, texts=count), rounds * ROUND * slow
        )
        self._surprise = self.hidden + (slow - 1.0)
        plain = 1.0 + ROW * (self.streams - 1)
        self.gained -= (rounds * ROUND + ROW * nodes + self.hidden) / plain * self.streams
        for ask in chosen.asks:
            self.drafted.append(step)
            stood = int(self._random.random() < self.rate(step))
            self.gained += stood
            self.plans.learn(chosen.plan, ask, Judged(stood, 1, stood))


def share(world: World, first: int, last: int) -> float:
    """Of steps drafted."""
    return sum(first <= step < last for step in world.drafted) / ((last - first) * world.streams)


def test_seven_percent_more_tokens_for_fourteen_percent_more_time_is_dropped() -> None:
    world = World(lambda step: 0.07, hidden=0.14 - ROUND - ROW).live(1000)
    assert share(world, 60, 1000) < 0.15
    assert world.gained > -MOST_LOST - 0.03 * 1000


def test_thirty_percent_more_tokens_for_ten_percent_more_time_is_kept() -> None:
    world = World(lambda step: 0.30, hidden=0.10 - ROUND - ROW).live(1000)
    assert share(world, 0, 1000) > 0.9
    assert world.gained > 0.15 * 1000


def test_who_is_not_told_what_steps_took_goes_on_at_a_loss() -> None:
    """What the rule is for: predictions alone say that drafts pay, and beliefs in how often they stand are right."""
    blind = World(lambda step: 0.30, hidden=0.45, told=False).live(600)
    assert share(blind, 100, 600) > 0.9
    assert blind.gained < -0.15 * 600
    seeing = World(lambda step: 0.30, hidden=0.45).live(600)
    assert share(seeing, 100, 600) < 0.15
    assert seeing.gained > blind.gained / 5


@pytest.mark.parametrize("streams", [4, 16])
def test_many_streams_share_the_time(streams: int) -> None:
    """A step's hidden time is paid once by all of them."""
    dear = World(lambda step: 0.1, hidden=0.4 * streams, streams=streams).live(400)
    assert share(dear, 60, 400) < 0.15
    cheap = World(lambda step: 0.7, hidden=0.01 * streams, streams=streams).live(400)
    assert share(cheap, 0, 400) > 0.8


def test_a_text_that_becomes_easy_is_found_again() -> None:
    """Within the patience that it has by then, and what the allowance needs for a trial."""
    world = World(lambda step: 0.0 if step < 200 else 0.9, hidden=0.1).live(600)
    assert share(world, 60, 200) < 0.25
    later = 200 + 4 * PATIENCE + round(MOST_LOST / SHARE)
    assert share(world, later, 600) > 0.9


def test_one_slow_step_ends_nothing() -> None:
    """Neither a step nor its round."""
    world = World(lambda step: 0.3, hidden=0.05, slow=lambda step: 200.0 if step % 50 == 49 else 1.0).live(1000)
    assert share(world, 0, 1000) > 0.9


def test_what_a_hopeless_drafter_costs_is_bounded() -> None:
    """Over many short texts: the share, a constant, and at the beginning what it takes to know the time of rounds."""
    world = World(lambda step: 0.0, hidden=0.3)
    for text in range(40):
        world.live(100, 100 * text, str(text))
        for place in range(world.streams):
            world.plans.forget((str(text), place))
    first = 2 * MOST_LOST + ENOUGH
    assert -world.gained < SHARE * 4000 + 2 * MOST_SAVED + first
    assert -world.gained < 0.03 * 4000


def test_what_many_streams_take_is_learned_as_the_allowance_has_it() -> None:
    """Three steps of a number of streams make it known; each would cost all of them."""
    world = World(lambda step: 0.0, hidden=4.0, streams=16).live(40)
    assert min(np.diff(sorted(set(world.drafted)))) > 5


def test_a_text_sleeps_longer_each_time() -> None:
    allowance, gaps = Allowance(), []
    trial = TextTrial.begin(allowance, promising=False)
    assert trial.awake, "a trial is affordable"
    for _ in range(8):
        trial.settle(-2 * MOST_LOST, allowance, pays=False)
        allowance.add(100.0)
        gaps.append(0)
        soon = 0
        while not trial.awake:
            soon += trial.soon
            trial.sleep(allowance)
            gaps[-1] += 1
        assert soon == WARM_UP + 1
    assert gaps[:3] == [PATIENCE + 1, 2 * PATIENCE + 1, 4 * PATIENCE + 1]
    assert gaps[-1] == LONGEST_PATIENCE + 1


def test_nobody_wakes_beyond_the_allowance() -> None:
    allowance = Allowance()
    for _ in range(2):
        assert TextTrial.begin(allowance, promising=False).awake
    assert not allowance.is_enough
    assert not TextTrial.begin(allowance, promising=False).awake
    assert TextTrial.begin(allowance, promising=True).awake
    allowance.add(-2 * MOST_SAVED)
    assert not TextTrial.begin(allowance, promising=True).awake, "predictions were wrong too often"


def test_what_is_predicted_to_pay_may_lose_twice_as_much() -> None:
    for pays in (False, True):
        allowance = Allowance()
        trial = TextTrial.begin(allowance, promising=True)
        trial.settle(-1.5 * MOST_LOST, allowance, pays=pays)
        assert trial.awake is pays
    trial.settle(-MOST_LOST, allowance, pays=True)
    assert not trial.awake


def test_looking_takes_no_stake() -> None:
    """What drafts would bring is asked of texts that others draft for; trials are for those that are drafted for."""
    plans = PaidLength(ScriptedCosts(each_row(ROW)), 1, 1)
    for _ in range(ENOUGH):
        plans.spent(DraftPlan((), 1), 1, 3, Rounds(1, rows=1, nodes=1, texts=1), 5.0)  # never worth it
    asks = [DraftAsk((f"t{place}", 0), 1, TOKENS, 16, 16) for place in range(8)]
    expected = plans.goodput(asks[-1], 1)
    for ask in asks[:-1]:
        plans.goodput(ask, 1)
    assert plans.goodput(asks[-1], 1) == expected
    assert plans.choose(asks[-1:]).asks, "there is still enough for a trial"


def test_states_are_collected_for_those_alone_that_will_begin_awake() -> None:
    plans = PaidLength(ScriptedCosts(each_row(ROW)), 1, 1)
    asks = [DraftAsk((f"t{place}", 0), 1, TOKENS, 16, 16) for place in range(9)]
    for place in range(8):
        chosen = plans.choose(asks[place : place + 1])
        assert chosen.promising == bool(chosen.asks), "what so few take is not known yet"
        if chosen.asks:
            plans.spent(chosen.plan, 1, 3, Rounds(1, rows=1, nodes=1, texts=1), 50.0)
            plans.learn(chosen.plan, asks[place], Judged(0, 1, 0))
    assert not plans.choose(asks[8:]).promising


def test_a_loss_is_paid_once() -> None:
    allowance = Allowance()
    trial = TextTrial.begin(allowance, promising=True)
    before = allowance_of(allowance)
    trial.settle(-0.5, allowance, pays=True)
    trial.settle(-0.5, allowance, pays=True)
    trial.end(allowance)
    assert allowance_of(allowance) == pytest.approx(before - 1.0)


def test_a_share_of_what_was_gained_may_be_lost_again() -> None:
    allowance = Allowance()
    trial = TextTrial.begin(allowance, promising=True)
    before = allowance_of(allowance)
    trial.settle(3.0, allowance, pays=True)
    trial.end(allowance)
    assert allowance_of(allowance) == pytest.approx(before + GAIN_SHARE * 3.0)


def allowance_of(allowance: Allowance) -> float:
    return allowance._saved
