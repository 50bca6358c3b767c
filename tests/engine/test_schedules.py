"""Whatever the schedule (arrival, chunks, preemption, drafts, cache hits, abort): each sequence equals its solo run."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from offramp.core import Request, SamplingParams, SequenceKey
from offramp.engine.engine import Engine
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.testing.drafters import ScriptedDrafter, mixed_chain, random_tree
from offramp.testing.running import Told, drain, hear, run_plain
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

VOCAB = 260
MAX_CONTEXT = 96
TOY = toy_source(
    toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1), seed=3, weights="q8"
)


def scripted(num_pages: int) -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=num_pages)


def twin(num_pages: int) -> LayerExecutor:
    return TwinExecutor(TOY, num_pages=num_pages)


def native(num_pages: int) -> LayerExecutor:
    return build_executor(TOY, num_pages=num_pages, threads=1)


def random_params(rng: random.Random) -> SamplingParams:
    return SamplingParams(
        temperature=rng.choice([0.0, 0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        max_tokens=rng.choice([1, 3, 9, 17, None]),
        min_tokens=rng.choice([0, 0, 1]),
        stop_token_ids=tuple(rng.sample(range(VOCAB), rng.choice([0, 6]))),
        n=rng.choice([1, 1, 1, 3]),
        logprobs=rng.choice([None, 2]),
        prompt_logprobs=rng.choice([None, None, 1]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
    )


def random_requests(rng: random.Random) -> list[Request]:
    """Prompts share beginnings of several lengths, so that prefix hits of every kind occur."""
    common = [rng.randrange(VOCAB) for _ in range(90)]
    requests: list[Request] = []
    for index in range(rng.randint(3, 7)):
        shared = rng.choice([0, 0, 20, 32, 64, 80])
        own = rng.choice([0, 1, 5, 30]) if shared else rng.choice([1, 4, 33, 64])
        prompt = (common[:shared] + [rng.randrange(VOCAB) for _ in range(own)])[: MAX_CONTEXT - 1]
        requests.append(
            Request(
                request_id=f"r{index}",
                prompt_token_ids=prompt,
                params=random_params(rng),
                seed=rng.randrange(2**64),
                eos_token_ids=frozenset(rng.sample(range(VOCAB), 3)),
                priority=rng.choice([0, 0, 1, -1]),
                cache_salt=rng.choice(["", "", "tenant"]),
            )
        )
    return requests


def random_drafter(rng: random.Random, answers: dict[SequenceKey, list[int]]) -> ScriptedDrafter | None:
    seed = rng.randrange(1000)
    kind = rng.choice(["none", "chain", "tree"])
    if kind == "none":
        return None
    if kind == "chain":
        return ScriptedDrafter(mixed_chain(answers, 5, VOCAB, seed), max_nodes=5)
    return ScriptedDrafter(random_tree(answers, 12, VOCAB, seed), max_nodes=12)


def check_schedule(make: Callable[[int], LayerExecutor], seed: int) -> Engine:
    rng = random.Random(seed)
    requests = random_requests(rng)
    solo: dict[SequenceKey, Told] = {}
    for request in requests:
        solo |= run_plain(make(16), request, max_context=MAX_CONTEXT)
    answers = {key: told.token_ids for key, told in solo.items()}
    engine = Engine(
        make(rng.choice([3, 5, 9])),
        max_context=MAX_CONTEXT,
        max_num_seqs=rng.choice([1, 2, 5]),
        max_num_batched_tokens=rng.choice([1, 7, 40, 200]),
        drafter=random_drafter(rng, answers),
        prefix_cache=rng.random() < 0.7,
    )
    arrivals = sorted((rng.choice([0, rng.randint(0, 30)]), index) for index in range(len(requests)))
    aborted = {request.request_id: rng.randint(1, 25) for request in requests if rng.random() < 0.15}
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
    drain(engine, told)
    assert {request_id for request_id, _ in solo.keys() - told.keys()} <= aborted.keys()
    for key, mine in told.items():
        compare(mine, solo[key], key)
    return engine


def compare(mine: Told, alone: Told, key: SequenceKey) -> None:
    if mine.finish_reason == "abort":
        assert mine.token_ids == alone.token_ids[: len(mine.token_ids)], key
        return
    assert mine.token_ids == alone.token_ids, key
    assert (mine.finish_reason, mine.text_stopped) == (alone.finish_reason, alone.text_stopped), key
    assert mine.logprobs == alone.logprobs, key
    assert mine.prompt_logprobs == alone.prompt_logprobs, key


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_random_schedule_equals_solo_runs(seed: int) -> None:
    check_schedule(scripted if seed % 4 else twin, seed)


@pytest.mark.parametrize(
    "seed", [*range(500, 506), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(506, 510))]
)
def test_random_schedule_on_the_native_executor(seed: int) -> None:
    check_schedule(native, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(5, 20), *range(100, 300)])
def test_many_random_schedules_equal_solo_runs(seed: int) -> None:
    check_schedule(scripted if seed % 4 else twin, seed)


def test_the_schedules_exercise_what_they_should() -> None:
    engines = [check_schedule(scripted, seed) for seed in range(30, 42)]
    statistics = [engine.statistics for engine in engines]
    assert sum(s.num_preemptions for s in statistics) > 3
    assert sum(s.num_cached_tokens for s in statistics) > 100
    assert sum(s.num_accepted_tokens for s in statistics) > 20
    assert sum(s.num_draft_tokens - s.num_accepted_tokens for s in statistics) > 20
    assert {reason for s in statistics for reason in s.num_finished} >= {"stop", "length", "abort"}
