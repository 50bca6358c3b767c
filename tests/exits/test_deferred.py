"""Deferred fill: whichever rows leave early and whenever their debt is paid, K/V and full-depth logits stay the same.

Tokens are forced, so that the runs differ in nothing but depth.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import Request, SamplingParams, SequenceKey
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.exits.never import NeverExit
from offramp.model.executor import LayerExecutor
from offramp.sample.sampler import RowJob
from offramp.testing.exits import Choose, ScriptedExits
from offramp.testing.running import Told, drain, hear, run
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

NUM_LAYERS = 5
CONTEXT = 96
TOY = toy_source(
    toy_config(num_layers=NUM_LAYERS, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1),
    seed=7,
    weights="q8",
)


def forced(logits: NDArray[np.float32], jobs: Sequence[RowJob]) -> list[int | OfframpError]:
    """The token depends on the place only, not on the logits."""
    return [random.Random(f"{job.seed} {job.choice} {job.position}").randrange(260) for job in jobs]


def requests(count: int = 3, max_tokens: int = 16) -> list[Request]:
    return [
        Request(
            request_id=f"r{i}",
            prompt_token_ids=[(7 * i + j) % 260 for j in range(3 + 17 * i)],
            params=SamplingParams(max_tokens=max_tokens, logprobs=3),
            seed=i,
        )
        for i in range(count)
    ]


def coin(share: float, salt: int = 0) -> Choose:
    return lambda key, position, layer: random.Random(f"{salt} {key} {position} {layer}").random() < share


def engine_with(
    policy: ScriptedExits | None, executor: LayerExecutor | None = None, *, max_pending: int = 4, max_num_seqs: int = 16
) -> Engine:
    return Engine(
        executor or TwinExecutor(TOY, num_pages=12),
        max_context=CONTEXT,
        max_num_seqs=max_num_seqs,
        exit_policy=policy,
        max_pending=max_pending,
        sample_rows=forced,
    )


def depth_of(choose: Choose, layers: tuple[int, ...], key: SequenceKey, told: Told, prompt_len: int) -> list[int]:
    """For each output token the layers run for it, by the policy's rule: its first exit point, if any."""
    depths = []
    for index in range(len(told.token_ids)):
        position = prompt_len + index - 1
        exits = [layer for layer in layers if index > 0 and choose(key, position, layer)]
        depths.append(exits[0] if exits else NUM_LAYERS)
    return depths


@pytest.fixture(scope="module")
def truth() -> dict[SequenceKey, Told]:
    """Every row at full depth."""
    return run(engine_with(None), requests())


CASES = [
    ((2,), 0.5, 1),
    ((2,), 0.5, 64),
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
    policy = ScriptedExits(layers, choose)
    engine = engine_with(policy, max_pending=max_pending)
    told = run(engine, requests())
    num_exits = 0
    for request in requests():
        key = (request.request_id, 0)
        assert told[key].token_ids == truth[key].token_ids
        depths = depth_of(choose, layers, key, told[key], len(request.prompt_token_ids))
        for depth, mine, full in zip(depths, told[key].logprobs, truth[key].logprobs, strict=True):
            if depth == NUM_LAYERS:
                assert mine == full, "a full-depth row read K/V that differs"
            else:
                assert mine != full, "the token did not come from its exit"
                num_exits += 1
    counted = engine.statistics.num_exits_per_layer
    assert sum(counted[layer] for layer in layers) == num_exits > 10


def paid_kv(executor: TwinExecutor) -> list[NDArray[np.floating]]:
    return [array for cache in executor._caches for array in (cache.keys, cache.values)]


def test_stored_kv_is_bitwise_that_of_full_depth() -> None:
    """The last row of each sequence runs all layers, so that everything is paid when it ends."""
    last = {(r.request_id, 0): len(r.prompt_token_ids) + 16 - 2 for r in requests()}
    toss = coin(0.6)
    policy = ScriptedExits((1, 3), lambda key, position, layer: position != last[key] and toss(key, position, layer))
    executors = TwinExecutor(TOY, num_pages=12), TwinExecutor(TOY, num_pages=12)
    run(engine_with(policy, executors[0]), requests())
    run(engine_with(None, executors[1]), requests())
    for mine, full in zip(paid_kv(executors[0]), paid_kv(executors[1]), strict=True):
        assert np.array_equal(mine, full, equal_nan=True)
    unpaid = TwinExecutor(TOY, num_pages=12)
    run(engine_with(ScriptedExits((1, 3), coin(1.0)), unpaid, max_pending=64), requests())
    assert not all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(paid_kv(unpaid), paid_kv(executors[1]), strict=True)
    )


@pytest.mark.parametrize("seed", range(3))
def test_tokens_don_t_depend_on_neighbours_bookkeeping_or_preemption(seed: int) -> None:
    """Sampling by argmax of the exit's own logits: the answer of each sequence is the same however it was scheduled."""

    def greedy(logits: NDArray[np.float32], jobs: Sequence[RowJob]) -> list[int | OfframpError]:
        return [int(row.argmax()) for row in logits]

    def engine(num_pages: int, max_num_seqs: int, max_pending: int, budget: int) -> Engine:
        return Engine(
            TwinExecutor(TOY, num_pages=num_pages),
            max_context=CONTEXT,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            exit_policy=ScriptedExits((1, 3), coin(0.5, seed)),
            max_pending=max_pending,
            sample_rows=greedy,
        )

    truth = run(engine(12, 1, 64, 512), requests())
    crowded = engine(4, 3, 1 + seed, 9 + seed)
    told = run(crowded, requests())
    assert {key: t.token_ids for key, t in told.items()} == {key: t.token_ids for key, t in truth.items()}
    assert {key: t.logprobs for key, t in told.items()} == {key: t.logprobs for key, t in truth.items()}
    assert crowded.statistics.num_preemptions > 0


def test_debt_is_bounded_and_dropped_at_abort_and_at_the_end() -> None:
    engine = engine_with(ScriptedExits((2,), coin(1.0)), max_pending=3)
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
    drain(engine, told)
    assert [engine._runner.num_pending((f"r{i}", 0)) for i in range(3)] == [0, 0, 0]
    assert told["r1", 0].finish_reason == "abort"


def test_only_paid_blocks_are_published() -> None:
    [request] = requests(1, max_tokens=50)
    engine = engine_with(ScriptedExits((2,), coin(1.0)), max_pending=64)
    told = run(engine, [request])
    follow_up = Request(
        request_id="next",
        prompt_token_ids=[*request.prompt_token_ids, *told["r0", 0].token_ids],
        params=SamplingParams(max_tokens=1),
        seed=0,
    )
    assert run(engine, [follow_up])["next", 0].num_cached_tokens == 0
    never = engine_with(None)
    run(never, [request])
    assert run(never, [follow_up])["next", 0].num_cached_tokens == 32


def test_rows_with_drafts_prompts_and_the_first_token_are_never_asked() -> None:
    policy = ScriptedExits((1,), coin(0.0))
    engine = engine_with(policy, ScriptedModel(mixing(), num_pages=12, num_layers=NUM_LAYERS))
    run(engine, requests(2, max_tokens=5))
    assert policy.num_asked == 2 * 4


def test_never_exit_has_no_exit_points() -> None:
    policy = NeverExit()
    assert policy.layers == ()
    engine = engine_with(None)
    run(engine, requests(1, max_tokens=3))
    assert set(engine.statistics.num_exits_per_layer) == {NUM_LAYERS}
