"""Ways to leave a step: `compact` and `barrier` give each row the token it has alone, `literal` does not."""

from __future__ import annotations

import pytest

from offramp.core import ExitParams
from offramp.engine.exit_points import ExitBatching
from offramp.exits.policy import Fill
from offramp.model.executor import FINAL
from offramp.testing.exits import Choose, ScriptedExits
from offramp.testing.running import run
from tests.exits.exiting import (
    NUM_LAYERS,
    Recorder,
    SureExits,
    alone,
    at_full_depth,
    coin,
    engine_with,
    native,
    requests,
    says_the_same,
    twin,
)

MARGIN = 0.6  # about half of the toy's rows are surer than that


@pytest.mark.parametrize("batching", ["compact", "barrier"])
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("previous", [False, True])
def test_each_row_has_the_token_it_has_alone(batching: ExitBatching, fill: Fill, previous: bool) -> None:
    """Decisions by the rows' own values, in batches of several sizes, exact K/V or not."""
    policy = SureExits((1, 2, 4), MARGIN, fill=fill, previous=previous)
    truth = alone(policy, requests(5))
    depths = [layer for told in truth.values() for layer in told.exit_layers]
    assert set(depths) == {1, 2, 4, NUM_LAYERS}
    for max_num_seqs in (2, 5):
        engine = engine_with(policy, native(), batching=batching, max_num_seqs=max_num_seqs, max_pending=2)
        says_the_same(run(engine, requests(5)), truth)
        assert (engine.statistics.num_involuntary_stays > 0) == (batching == "barrier")


def at(exits: dict[str, dict[int, int]]) -> Choose:
    """(request, output) -> the first layer at which it is sure; others never are."""
    return lambda key, output, layer: layer >= exits[key[0]].get(output, NUM_LAYERS)


def test_a_barrier_runs_all_to_the_depth_where_the_last_is_sure() -> None:
    """Output 1: both early; 2: the second later; 3: the second never."""
    choose = at({"r0": {1: 1, 2: 1, 3: 1}, "r1": {1: 1, 2: 3}})
    recorder = Recorder(twin())
    engine = engine_with(ScriptedExits((1, 3), choose), recorder, batching="barrier", max_pending=9)
    told = run(engine, requests(2, max_tokens=4))
    assert told["r0", 0].exit_layers == [5, 1, 1, 1]
    assert told["r1", 0].exit_layers == [5, 1, 3, 5]
    first, second = [(0, 1, 2)], [(0, 1, 2), (1, 3, 4)]  # the debts of output 1 come along from layer 1 on
    third = [(0, 1, 2), (1, 3, 2), (3, 5, 6)]
    assert recorder.ranges[1:] == [*first, *second, *third]
    assert engine.statistics.num_involuntary_stays == 2
    assert engine.statistics.num_paid_debts == 4


def test_full_requests_never_hold_a_barrier() -> None:
    """Not asked, and the others leave as soon as all of them are sure."""
    recorder = Recorder(twin())
    policy = ScriptedExits((2, 3), coin(1.0))
    asked = [*requests(1, 4), *at_full_depth(requests(2, 4))[1:]]
    engine = engine_with(policy, recorder, batching="barrier", max_pending=9)
    run(engine, asked)
    assert recorder.ranges[1:] == [(0, 2, 2), (2, 5, 1)] * 3
    assert engine.statistics.num_involuntary_stays == 0


def test_a_policy_without_exit_points_holds_no_barrier() -> None:
    recorder = Recorder(twin())
    table = {"early": ScriptedExits((2,), coin(1.0)), "off": ScriptedExits((), coin(1.0))}
    asked = [requests(1, 4)[0], requests(2, 4, ExitParams(policy="off"))[1]]
    told = run(engine_with(table, recorder, batching="barrier", max_pending=9), asked)
    assert recorder.ranges[1:] == [(0, 2, 2), (2, 5, 1)] * 3
    assert (told["r0", 0].exit_layers, told["r1", 0].exit_layers) == ([5, 2, 2, 2], [5] * 4)


def test_rows_that_owe_too_much_hold_no_barrier_either() -> None:
    """With one debt each, every second row pays."""
    engine = engine_with(ScriptedExits((2,), coin(1.0)), batching="barrier", max_pending=1)
    told = run(engine, requests(2, max_tokens=9))
    assert all(one.exit_layers == [5] + [2] * 8 for one in told.values())
    assert engine.statistics.num_forced_rows == engine.statistics.num_paid_debts == 2 * 4


def test_a_barrier_waits_for_rows_of_other_policies() -> None:
    table = {"early": ScriptedExits((1,), coin(1.0)), "late": ScriptedExits((3,), coin(0.5))}
    asked = [requests(1)[0], requests(2, exits=ExitParams(policy="late"))[1]]
    engine = engine_with(table, batching="barrier", max_pending=3)
    says_the_same(run(engine, asked), alone(table, asked))
    assert engine.statistics.num_involuntary_stays >= 15  # the first of the two, whenever the second runs too


def test_literally_all_take_the_token_of_the_last_one_sure() -> None:
    choose = at({"r0": {1: 1, 2: 1, 3: 1}, "r1": {1: 1, 2: 3}})
    recorder = Recorder(twin())
    engine = engine_with(ScriptedExits((1, 3), choose), recorder, batching="literal", max_pending=9)
    told = run(engine, requests(2, max_tokens=4))
    assert told["r0", 0].exit_layers == told["r1", 0].exit_layers == [5, 1, 3, 5]
    assert engine.statistics.num_involuntary_stays == 2
    assert recorder.heads[1:] == [(FINAL, 2)] * 3


def test_who_was_sure_once_is_not_asked_to_be_so_again() -> None:
    """The first is sure at layer 1 only, the second at layer 3 only."""
    policy = ScriptedExits((1, 3), lambda key, output, layer: layer == (1 if key[0] == "r0" else 3))
    told = run(engine_with(policy, batching="literal"), requests(2, max_tokens=4))
    assert told["r0", 0].exit_layers == told["r1", 0].exit_layers == [5, 3, 3, 3]


@pytest.mark.parametrize("fill", ["deferred", "propagate"])
def test_literal_tokens_depend_on_the_batch(fill: Fill) -> None:
    """Why it is for benchmarks only; alone, a request has the tokens that any barrier gives it."""
    policy = SureExits((1, 3), MARGIN, fill=fill)
    truth = alone(policy, requests())
    for request in requests():
        mine = run(engine_with(policy, batching="literal"), [request])
        says_the_same(mine, {key: told for key, told in truth.items() if key in mine})
    together = run(engine_with(policy, batching="literal"), requests())
    assert any(together[key].token_ids != truth[key].token_ids for key in truth)
