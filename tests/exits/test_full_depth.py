"""Full depth costs and changes nothing: no exit that fires, no policy, no call of any of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offramp.core import ExitParams
from offramp.engine.exit_points import ExitBatching
from offramp.exits.policy import Fill
from offramp.model.executor import FINAL, LayerExecutor
from offramp.testing.exits import ScriptedExits
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

NEVER = 1e9
WAYS = [(twin, "compact"), (native, "compact"), (native, "barrier"), (native, "literal")]


@pytest.mark.parametrize(("make", "batching"), WAYS)
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
def test_a_threshold_that_never_fires_is_full_depth(
    make: Callable[[], LayerExecutor], batching: ExitBatching, fill: Fill
) -> None:
    policy = SureExits((1, 3), NEVER, fill=fill, previous=True)
    engine = engine_with(policy, make(), batching=batching)
    told = run(engine, requests(max_tokens=9))
    full = run(engine_with(None, make()), at_full_depth(requests(max_tokens=9)))
    assert policy.num_asked == engine.statistics.num_asked_per_layer.total() == 3 * 8 * 2
    for key, mine in told.items():
        assert (mine.token_ids, mine.logprobs) == (full[key].token_ids, full[key].logprobs)
        assert mine.exit_layers == [NUM_LAYERS] * 9
        assert mine.exact_kv


@pytest.mark.parametrize(("make", "batching"), WAYS)
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
def test_full_requests_beside_exiting_ones_are_as_alone(
    make: Callable[[], LayerExecutor], batching: ExitBatching, fill: Fill
) -> None:
    early, full = requests(3, max_tokens=12)[::2], at_full_depth(requests(4, max_tokens=12)[1::2])
    policy = ScriptedExits((1, 3), coin(0.6), fill=fill)
    told = run(engine_with(policy, make(), batching=batching, budget=13), [*early, *full])
    mine = {key: told[key] for key in told if key[0] in {request.request_id for request in full}}
    says_the_same(mine, alone(None, full))
    assert policy.num_asked > 20


def test_full_requests_call_no_part_of_a_policy() -> None:
    """Also in an engine that has policies, and with a finished policy's request behind it."""
    policy = ScriptedExits((1, 3), coin(0.5), wants_labels=True)
    recorder, plain = Recorder(twin()), Recorder(twin())
    engine = engine_with(policy, recorder)
    run(engine, at_full_depth(requests()))
    run(engine_with(None, plain), at_full_depth(requests()))
    assert (recorder.ranges, recorder.heads, recorder.fills) == (plain.ranges, plain.heads, [])
    assert {(start, stop) for start, stop, _ in recorder.ranges} == {(0, NUM_LAYERS)}
    assert {head for head, _ in recorder.heads} == {FINAL}
    assert (policy.num_asked, policy.labels, policy.forgotten) == (0, {}, [])
    statistics = engine.statistics
    assert not statistics.num_exits_per_layer
    assert not statistics.num_asked_per_layer
    assert not statistics.num_head_rows_per_layer


def test_ranges_are_split_only_where_a_policy_of_the_batch_is_asked() -> None:
    table = {
        "one": ScriptedExits((1,), coin(0.0)),
        "three": ScriptedExits((3,), coin(0.0), wants_previous=True),
        "none": ScriptedExits((), coin(1.0)),
    }
    expected = {
        ("one",): {(0, 1), (1, 5)},
        ("three",): {(0, 2), (2, 3), (3, 5)},
        ("none",): {(0, 5)},
        ("one", "three", None): {(0, 1), (1, 2), (2, 3), (3, 5)},
    }
    for names, ranges in expected.items():
        recorder = Recorder(twin())
        asked = zip(names, requests(len(names), max_tokens=4), strict=True)
        run(engine_with(table, recorder), [replace(request, exits=ExitParams(policy=name)) for name, request in asked])
        assert {(start, stop) for start, stop, _ in recorder.ranges} == ranges | {(0, 5)}


def test_nothing_more_is_split_once_nobody_may_leave() -> None:
    """Of two sequences one leaves at the first of three points; the full one then runs to the end in one call."""
    recorder = Recorder(twin())
    engine = engine_with(ScriptedExits((1, 2, 3), coin(1.0)), recorder, max_pending=64)
    run(engine, [*requests(1, 4), *at_full_depth(requests(2, 4))[1:]])
    assert recorder.ranges[1:] == [(0, 1, 2), (1, 5, 1)] * 3


def test_when_all_have_left_nothing_runs() -> None:
    recorder = Recorder(twin())
    run(engine_with(ScriptedExits((2,), coin(1.0)), recorder, max_pending=64), requests(2, 4))
    assert recorder.ranges[1:] == [(0, 2, 2)] * 3
    assert recorder.heads[1:] == [(FINAL, 2)] * 3
