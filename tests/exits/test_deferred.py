"""Deferred fill: whichever rows leave early and whenever their debt is paid, K/V and full-depth logits stay the same.

Tokens are forced where runs shall differ in nothing but depth.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import Request, SamplingParams, SequenceKey
from offramp.testing.exits import Choose, ScriptedExits
from offramp.testing.running import Told, drain, hear, run
from offramp.testing.scripted import ScriptedModel, mixing
from tests.exits.exiting import (
    EARLY,
    NUM_LAYERS,
    alone,
    at_full_depth,
    coin,
    engine_with,
    forced,
    native,
    requests,
    says_the_same,
    stored_kv,
    twin,
)


def depths(choose: Choose, layers: tuple[int, ...], key: SequenceKey, count: int) -> list[int]:
    """For each output token the layers run for it, by the policy's rule: its first exit point, if any."""
    exits = [[layer for layer in layers if output > 0 and choose(key, output, layer)] for output in range(count)]
    return [chosen[0] if chosen else NUM_LAYERS for chosen in exits]


@pytest.fixture(scope="module")
def truth() -> dict[SequenceKey, Told]:
    """Every row at full depth."""
    return run(engine_with(None, sample_rows=forced), at_full_depth(requests()))


CASES = [
    ((2,), 0.5, 1),
    ((2,), 0.5, 8),
    ((1, 3), 0.4, 2),
    ((1, 2, 3, 4), 0.3, 1),
    ((1, 2, 3, 4), 0.3, 4),
    ((3,), 1.0, 2),
]


@pytest.mark.parametrize(("layers", "share", "max_pending"), CASES)
def test_late_payment_equals_never_exiting(
    layers: tuple[int, ...], share: float, max_pending: int, truth: dict[SequenceKey, Told]
) -> None:
    choose = coin(share)
    engine = engine_with(ScriptedExits(layers, choose), max_pending=max_pending, sample_rows=forced)
    told = run(engine, requests())
    num_exits = 0
    for key, mine in told.items():
        assert mine.token_ids == truth[key].token_ids
        assert mine.exit_layers == depths(choose, layers, key, len(mine.token_ids))
        for depth, here, full in zip(mine.exit_layers, mine.logprobs, truth[key].logprobs, strict=True):
            if depth == NUM_LAYERS:
                assert here == full, "a full-depth row read K/V that differs"
            else:
                assert here != full, "the token did not come from its exit"
                num_exits += 1
        assert mine.exact_kv
    counted = engine.statistics.num_exits_per_layer
    assert sum(counted[layer] for layer in layers) == num_exits > 10
    assert counted.total() == engine.statistics.num_generated_tokens


@pytest.fixture(scope="module")
def full_kv() -> list[NDArray[np.floating]]:
    """What the cache holds after every row ran at full depth."""
    full = twin()
    run(engine_with(None, full, sample_rows=forced), at_full_depth(requests()))
    return stored_kv(full)


@pytest.mark.parametrize("max_pending", range(1, 9))
def test_stored_kv_is_bitwise_that_of_full_depth(max_pending: int, full_kv: list[NDArray[np.floating]]) -> None:
    """The last row of each sequence runs all layers, so that everything is paid when it ends."""
    toss = coin(0.6)
    policy = ScriptedExits((1, 3), lambda key, output, layer: output != 15 and toss(key, output, layer))
    mine = twin()
    engine = engine_with(policy, mine, max_pending=max_pending, sample_rows=forced)
    run(engine, requests())
    for here, there in zip(stored_kv(mine), full_kv, strict=True):
        assert np.array_equal(here, there, equal_nan=True)
    statistics = engine.statistics
    num_exits = statistics.num_exits_per_layer[1] + statistics.num_exits_per_layer[3]
    assert statistics.num_paid_debts + statistics.num_forced_rows == num_exits > 20
    assert statistics.num_forced_rows > 10 or max_pending > 1


def test_unpaid_layers_differ_from_full_depth(full_kv: list[NDArray[np.floating]]) -> None:
    """What the test above would see if debts were never paid."""
    mine = twin()
    run(engine_with(ScriptedExits((1, 3), coin(1.0)), mine, max_pending=64, sample_rows=forced), requests())
    pairs = zip(stored_kv(mine), full_kv, strict=True)
    assert not all(np.array_equal(here, there, equal_nan=True) for here, there in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_tokens_depend_neither_on_neighbours_nor_bookkeeping_nor_preemption(seed: int) -> None:
    policy = ScriptedExits((1, 3), coin(0.5, seed))
    crowded = engine_with(policy, native(4), max_num_seqs=3, max_pending=1 + seed, budget=9 + seed)
    says_the_same(run(crowded, requests()), alone(policy, requests()))
    assert crowded.statistics.num_preemptions > 0


def test_debt_is_bounded_and_dropped_at_abort_and_at_the_end() -> None:
    policy = ScriptedExits((2,), coin(1.0))
    engine = engine_with(policy, max_pending=3)
    for request in requests():
        engine.add_request(request)
    told: dict[SequenceKey, Told] = {}
    most = 0
    for _ in range(15):
        hear(engine, told)
        pending = [engine._runner.num_pending((f"r{i}", 0)) for i in range(3)]
        most = max(most, *pending)
    assert most == 3
    assert engine.abort("r1")
    assert policy.forgotten == [("r1", 0)]
    drain(engine, told)
    assert [engine._runner.num_pending((f"r{i}", 0)) for i in range(3)] == [0, 0, 0]
    assert told["r1", 0].finish_reason == "abort"
    assert sorted(policy.forgotten) == [("r0", 0), ("r1", 0), ("r2", 0)]


def test_only_paid_blocks_are_published() -> None:
    [request] = requests(1, max_tokens=50)
    engine = engine_with(ScriptedExits((2,), coin(1.0)), max_pending=64, sample_rows=forced)
    told = run(engine, [request])
    follow_up = Request(
        request_id="next",
        prompt_token_ids=[*request.prompt_token_ids, *told["r0", 0].token_ids],
        params=SamplingParams(max_tokens=1),
        seed=0,
    )
    assert run(engine, [follow_up])["next", 0].num_cached_tokens == 0
    never = engine_with(None, sample_rows=forced)
    run(never, at_full_depth([request]))
    assert run(never, [follow_up])["next", 0].num_cached_tokens == 32


def test_a_paid_prefix_serves_others_as_if_it_had_never_been_owed() -> None:
    """A request with exits, then one without on the same prefix: as in a cold engine, bit for bit."""
    [request] = requests(1, max_tokens=70)
    engine = engine_with(ScriptedExits((1, 3), coin(0.7)))
    told = run(engine, [request])
    prompt = [*request.prompt_token_ids, *told["r0", 0].token_ids]
    follow_up = Request(
        request_id="next", prompt_token_ids=prompt, params=SamplingParams(max_tokens=9, logprobs=5), seed=0
    )
    warm = run(engine, [follow_up])
    assert warm["next", 0].num_cached_tokens == 64
    says_the_same(warm, run(engine_with(None), [follow_up]))


def test_rows_of_prompts_and_the_first_token_are_never_asked() -> None:
    policy = ScriptedExits((1,), coin(0.0))
    engine = engine_with(policy, ScriptedModel(mixing(), num_pages=12, num_layers=NUM_LAYERS))
    run(engine, requests(2, max_tokens=5))
    assert policy.num_asked == 2 * 4
    assert sorted(output for rows in policy.asked for output in rows.outputs.tolist()) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_chunk_that_is_recomputed_may_leave_with_its_last_row() -> None:
    """After preemption the last of several rows is a candidate; the others go on, and take its debt along."""
    rng = random.Random(5)
    asked = [
        Request(
            request_id=f"r{i}",
            prompt_token_ids=[rng.randrange(260) for _ in range(20)],
            params=SamplingParams(temperature=0, max_tokens=40, logprobs=1),
            seed=0,
            exits=EARLY,
        )
        for i in range(3)
    ]
    policy = ScriptedExits((2,), coin(1.0))
    engine = engine_with(policy, native(4))
    says_the_same(run(engine, asked), alone(policy, asked))
    assert engine.statistics.num_preemptions > 0
