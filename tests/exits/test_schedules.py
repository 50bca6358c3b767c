"""Whatever the schedule, with several exit policies, payments and ways to batch: each sequence is as in its solo run.

Arrivals, chunks, preemption, cache hits, aborts, stop tokens, lengths and the context's end come at random, with debts
unpaid; the books are checked after every step. K/V that is projected does not survive preemption, so such requests are
compared only where nobody was preempted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import ExitParams, Request, SequenceKey
from offramp.engine.engine import Engine
from offramp.exits.policy import ExitPolicy
from offramp.model.executor import LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.native.sampling import sample_rows
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import Told, drain, hear, run
from offramp.testing.scripted import Script, ScriptedModel, peak
from tests.engine.test_schedules import MAX_CONTEXT, compare, random_requests
from tests.exits.exiting import NUM_LAYERS, VOCAB, SureExits, coin, native, twin

PROPAGATING = "projected"
NAMES = (None, "one", "all", "reduced", "values", PROPAGATING)


def by_depth() -> Script:
    """Argmax is a hash of the whole history and the depth: a token from another exit changes all that follows."""

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        state = 2166136261 + depth
        for token in history:
            state = ((state ^ token) * 16777619) % 2**32
        return peak((state >> 8) % VOCAB)

    return script


def scripted(num_pages: int) -> LayerExecutor:
    return ScriptedModel(by_depth(), num_pages=num_pages, num_layers=NUM_LAYERS)


def policies(executor: LayerExecutor) -> dict[str, ExitPolicy]:
    """One of each kind."""
    head = executor.add_head(HeadWeights(vocab_ids=np.arange(1, VOCAB, 3, dtype=np.int32)))
    table: dict[str, ExitPolicy] = {
        "one": ScriptedExits((2,), coin(0.8, 1)),
        "all": ScriptedExits((1, 2, 3, 4), coin(0.3, 2), wants_labels=True),
        "reduced": ScriptedExits((3,), coin(0.5, 3), head=head, wants_previous=True),
        "values": SureExits((1, 4), 0.5, previous=not isinstance(executor, ScriptedModel)),
        PROPAGATING: ScriptedExits((1, 3), coin(0.4, 4), fill="propagate"),
    }
    return table


def solo(make: Callable[[int], LayerExecutor], request: Request) -> dict[SequenceKey, Told]:
    """Alone, whole prompt in one chunk, no prefix cache, payment as late as possible."""
    executor = make(16)
    engine = Engine(
        executor,
        max_context=MAX_CONTEXT,
        max_num_batched_tokens=65536,
        prefix_cache=False,
        exit_policies=policies(executor),
        max_pending=64,
        sample_rows=sample_rows,
    )
    return run(engine, [request])


def check_schedule(make: Callable[[int], LayerExecutor], seed: int) -> Engine:
    rng = random.Random(seed)
    requests = [replace(one, exits=ExitParams(policy=rng.choice(NAMES))) for one in random_requests(rng)]
    truth: dict[SequenceKey, Told] = {}
    for request in requests:
        truth |= solo(make, request)
    executor = make(rng.choice([3, 5, 9, 40]))
    engine = Engine(
        executor,
        max_context=MAX_CONTEXT,
        max_num_seqs=rng.choice([1, 2, 5, 9]),
        max_num_batched_tokens=rng.choice([1, 7, 40, 200]),
        prefix_cache=rng.random() < 0.7,
        exit_policies=policies(executor),
        exit_batching=rng.choice(["compact", "barrier"]),
        max_pending=rng.randint(1, 8),
        sample_rows=sample_rows,
    )
    told = play(engine, requests, rng)
    exits = {request.request_id: request.exits.policy for request in requests}
    for key, mine in told.items():
        if exits[key[0]] == PROPAGATING and engine.statistics.num_preemptions:
            continue
        compare(mine, truth[key], key)
        assert mine.exit_layers == truth[key].exit_layers[: len(mine.exit_layers)], key
        assert mine.exact_kv or exits[key[0]] == PROPAGATING
    return engine


def play(engine: Engine, requests: list[Request], rng: random.Random) -> dict[SequenceKey, Told]:
    """Requests arrive, and some are given up, between steps."""
    arrivals = sorted((rng.choice([0, rng.randint(0, 30)]), index) for index in range(len(requests)))
    aborted = {request.request_id: rng.randint(1, 25) for request in requests if rng.random() < 0.2}
    told: dict[SequenceKey, Told] = {}
    clock = 0
    while arrivals or engine.has_work:
        while arrivals and arrivals[0][0] <= clock:
            engine.add_request(requests[arrivals.pop(0)[1]])
        for request_id, when in aborted.items():
            if when == clock:
                engine.abort(request_id)
        hear(engine, told)
        clock += 1
    return drain(engine, told)


@pytest.mark.parametrize("seed", range(2))
def test_random_schedule_equals_solo_runs(seed: int) -> None:
    check_schedule(scripted, seed)


@pytest.mark.parametrize(
    "seed", [*range(500, 506), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(506, 512))]
)
def test_random_schedule_on_the_native_executor(seed: int) -> None:
    check_schedule(native, seed)


@pytest.mark.parametrize("seed", range(700, 701))
def test_random_schedule_on_the_twin(seed: int) -> None:
    check_schedule(twin, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4, *range(1000, 1200)])
def test_many_random_schedules_equal_solo_runs(seed: int) -> None:
    check_schedule((scripted, native, native, twin)[seed % 4], seed)


def test_the_schedules_exercise_what_they_should() -> None:
    statistics = [check_schedule(scripted, seed).statistics for seed in range(30, 39)]
    assert sum(s.num_preemptions for s in statistics) > 3
    assert sum(s.num_cached_tokens for s in statistics) > 100
    assert sum(s.num_paid_debts for s in statistics) > 100
    assert sum(s.num_forced_rows for s in statistics) > 20
    assert sum(s.num_propagated_rows for s in statistics) > 20
    assert sum(s.num_involuntary_stays for s in statistics) > 10
    assert {layer for s in statistics for layer in s.num_exits_per_layer} == {1, 2, 3, 4, 5}
    assert {reason for s in statistics for reason in s.num_finished} >= {"stop", "length", "abort"}
