"""Propagated K/V: projected from the row's own exit, marked, and kept from everybody else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Request, Rows, SamplingParams, SequenceKey
from offramp.engine.exit_points import ExitBatching
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import Told, run
from offramp.testing.twin import TwinExecutor
from tests.exits.exiting import (
    EARLY,
    NUM_LAYERS,
    Recorder,
    alone,
    at_full_depth,
    coin,
    engine_with,
    native,
    requests,
    says_the_same,
    stored_kv,
    twin,
)


def chain_rows(tokens: list[int], start: int) -> Rows:
    """Tokens of a sequence from `start` on that holds the pages 0, 1, ..."""
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    return Rows(
        tokens=np.array(tokens, dtype=np.int32),
        sequence=np.zeros(len(tokens), dtype=np.int32),
        positions=positions,
        slots=positions,
        prefix_lens=positions,
        ancestor_slots=np.zeros(0, dtype=np.int32),
        ancestor_starts=np.zeros(len(tokens) + 1, dtype=np.int32),
        page_ids=np.arange(3, dtype=np.int32),
        page_starts=np.array([0, 3], dtype=np.int32),
    )


def by_hand(executor: TwinExecutor, prompt: list[int], tokens: list[int], exits: list[int]) -> None:
    """Write the K/V of a prompt, and of all output tokens but the last: computed up to the exit, then projected."""
    rows = chain_rows(prompt, 0)
    executor.run_layers(executor.embed(rows), rows, 0, NUM_LAYERS)
    for index, layer in enumerate(exits):
        rows = chain_rows([tokens[index]], len(prompt) + index)
        hidden = executor.run_layers(executor.embed(rows), rows, 0, layer)
        executor.fill(hidden, rows, layer, NUM_LAYERS)


@pytest.mark.parametrize("batching", ["compact", "barrier"])
def test_skipped_kv_is_projected_from_the_rows_own_exit(batching: ExitBatching) -> None:
    """Whatever the neighbours do: K/V as computed by hand for each sequence, row by row."""
    asked = requests(3, max_tokens=12)
    executor = twin()
    policy = ScriptedExits((1, 3), coin(0.6), fill="propagate")
    told = run(engine_with(policy, executor, batching=batching, prefix_cache=False), asked)
    mine = stored_kv(executor)
    for request in asked:
        answer = told[request.request_id, 0]
        hand = twin()
        by_hand(hand, list(request.prompt_token_ids), answer.token_ids, answer.exit_layers[1:])
        count = len(request.prompt_token_ids) + 11
        for here, there in zip(mine, stored_kv(hand), strict=True):
            found = [page for page in range(12) if np.array_equal(here[32 * page], there[0])]
            assert found, "the sequence's first page is somewhere"
            at = 32 * found[0]
            whole = min(count, 32)
            assert np.array_equal(here[at : at + whole], there[:whole])
        assert {1, 3, 5} == set(answer.exit_layers)
        assert not answer.exact_kv


@pytest.mark.parametrize("batching", ["compact", "barrier", "literal"])
def test_skipped_layers_are_filled_in_the_same_step(batching: ExitBatching) -> None:
    """Nobody owes; as many rows are filled as tokens left."""
    recorder = Recorder(twin())
    engine = engine_with(ScriptedExits((1, 3), coin(0.6), fill="propagate"), recorder, batching=batching)
    run(engine, requests())
    statistics = engine.statistics
    num_exits = statistics.num_exits_per_layer[1] + statistics.num_exits_per_layer[3]
    assert sum(rows for _, _, rows in recorder.fills) == statistics.num_propagated_rows == num_exits
    assert num_exits > 20
    assert {(start, stop) for start, stop, _ in recorder.fills} <= {(1, NUM_LAYERS), (3, NUM_LAYERS)}
    assert (statistics.num_paid_debts, statistics.num_forced_rows) == (0, 0)


def follow_up(request: Request, told: Told) -> Request:
    """A lossless request that goes on where another ended, and lets see what K/V it found."""
    return Request(
        request_id="next",
        prompt_token_ids=[*request.prompt_token_ids, *told.token_ids],
        params=SamplingParams(temperature=0, max_tokens=9, logprobs=5),
        seed=0,
    )


@pytest.mark.parametrize("num_exact", [0, 30, 70])
def test_nothing_propagated_reaches_the_prefix_cache(num_exact: int) -> None:
    """Rows before the first exit are exact, and theirs are the only blocks that others find; those after it are not."""
    [request] = requests(1, max_tokens=80)
    policy = ScriptedExits((2,), lambda key, output, layer: output > num_exact, fill="propagate")
    engine = engine_with(policy)
    told = run(engine, [request])["r0", 0]
    assert told.exact_kv is False
    after = follow_up(request, told)
    warm = run(engine, [after])
    assert warm["next", 0].num_cached_tokens == (3 + num_exact) // 32 * 32
    assert warm["next", 0].exact_kv
    says_the_same(warm, run(engine_with(None), [after]))


def test_the_prompt_of_a_propagating_request_is_shared() -> None:
    """Its K/V is exact, both ways: with exits after without, and without after with."""
    request = replace(requests(4)[3], params=SamplingParams(temperature=0, max_tokens=8, logprobs=3))
    policy = ScriptedExits((1,), coin(0.8), fill="propagate")
    truth = {**alone(policy, [request]), **alone(None, at_full_depth([replace(request, request_id="full")]))}
    truth |= alone(policy, [replace(request, request_id="r3")])
    engine = engine_with(policy)
    told: dict[SequenceKey, Told] = {}
    for name, exits in (("r3", True), ("full", False)):
        asked = replace(request, request_id=name)
        told |= run(engine, [asked] if exits else at_full_depth([asked]))
    assert told["full", 0].num_cached_tokens == 32
    says_the_same(told, truth)


def test_a_sequence_that_is_preempted_recomputes_exactly() -> None:
    """Its response still says that tokens came from approximate K/V; its pages are published again as exact ones."""
    asked = [
        Request(
            request_id=f"r{i}",
            prompt_token_ids=[i] * 20,
            params=SamplingParams(temperature=0, max_tokens=40, logprobs=1),
            seed=0,
            exits=EARLY,
        )
        for i in range(3)
    ]
    policy = ScriptedExits((2,), coin(0.5), fill="propagate")
    engine = engine_with(policy, native(4))
    told = run(engine, asked)
    assert engine.statistics.num_preemptions > 0
    assert not any(one.exact_kv for one in told.values())
    assert all(len(one.token_ids) == 40 for one in told.values())
