"""Random worlds: whatever requests, drafters, ends, aborts and shortage of pages, outputs are those of plain runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest

from offramp.core import Drafter, DraftParams, Request, SamplingParams, SequenceKey
from offramp.draft import DRAFTERS, MAX_NODES, OFF, Drafters, make_drafter
from offramp.draft.choice import DrafterChoice
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.llm.text import ChoiceText
from offramp.native.sampling import sample_rows
from offramp.testing.drafters import ScriptedDrafter, mixed_chain, oracle_chain, random_tree, wrong_chain
from offramp.testing.running import MAX_STEPS, Told, drain, hear, run_plain
from offramp.testing.tokens import ByteTokenizer
from tests.speculation.cases import (
    FOREIGN,
    JOINED,
    LENGTH_NAMES,
    VOCAB,
    executor,
    make_drafters,
    make_lengths,
    same,
)
from tests.speculation.wheel import Wheel

SEEDS = range(16, 32)
CONTEXT = 90
NUM_PAGES = (3, 4, 5, 20)
"""Three hold one sequence of the whole context."""
SCRIPTED = ("right", "wrong", "mixed", "tree")
NAMES = (*DRAFTERS, *JOINED, *SCRIPTED)
Answers = dict[SequenceKey, list[int]]
Options = tuple[dict[str, object], ...]


@dataclass(slots=True)
class World:
    """What is asked of an engine, how it runs, and what each request says alone."""

    rng: random.Random
    requests: list[Request] = field(default_factory=list)
    truth: dict[SequenceKey, Told] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)  # request id -> step
    aborts: dict[str, int] = field(default_factory=dict)


TEMPERATURES: Options = ({"temperature": 0.0}, {"temperature": 0.0}, {"temperature": 0.5}, {"temperature": 1.3})
PENALTIES: Options = ({}, {}, {"repetition_penalty": 1.2}, {"frequency_penalty": 0.5, "presence_penalty": -0.5})
FILTERS: Options = ({}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1, "logit_bias": {3: 3.0}})


def random_params(rng: random.Random) -> SamplingParams:
    max_tokens = rng.choice([None, rng.randint(1, MAX_NODES + 1)])
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=0 if max_tokens == 1 else rng.choice([0, 0, 2]),
        stop_token_ids=tuple(rng.sample(range(VOCAB), rng.choice([0, 0, 0, 1]))),
        n=rng.choice([1, 1, 1, 3]),
        logprobs=rng.choice([None, 2]),
        prompt_logprobs=rng.choice([None, None, None, 1]),
        **rng.choice(TEMPERATURES),  # type: ignore[arg-type]
        **rng.choice(PENALTIES),  # type: ignore[arg-type]
        **rng.choice(FILTERS),  # type: ignore[arg-type]
    )


def random_request(rng: random.Random, name: str, shared: list[int]) -> Request:
    own = rng.choices(range(VOCAB), k=rng.choice([1, 3, 8]))
    prompt = rng.choice([shared + own, own, own * 6, shared[:40] + own * 2])[: CONTEXT - 1]
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        params=random_params(rng),
        seed=rng.randrange(2**64),
        priority=rng.choice([0, 0, 1]),
        cache_salt=rng.choice(["", "", "tenant"]),
        grammar=rng.choice([None, None, None, Wheel(VOCAB)]),
        drafting=DraftParams(
            drafter=rng.choice(NAMES),
            max_draft=rng.choice([None, None, None, 0, 1, 5]),
            references=tuple(
                np.array(rng.choices([*range(VOCAB), *FOREIGN], k=length), np.int32)
                for length in rng.choice([(), (0, 30), (60,)])
            ),
        ),
    )


def ending_within(rng: random.Random, request: Request, answer: list[int]) -> Request:
    """The request with an end token or a stop string that comes somewhere in its answer, or neither."""
    place = rng.randrange(len(answer))
    kind = rng.choice(["none", "none", "eos", "stop"])
    if kind == "eos":
        return replace(request, eos_token_ids=frozenset({answer[place]}))
    if kind == "none":
        return request
    stop = bytes(answer[place : place + rng.randint(1, 4)]).decode()
    params = replace(request.params, stop=(stop, "never"))
    watch = lambda choice: ChoiceText(ByteTokenizer(), params.stop, params.min_tokens).watch  # noqa: E731
    return replace(request, params=params, text_stop=watch)


def plain(request: Request) -> dict[SequenceKey, Told]:
    undrafted = replace(request, drafting=DraftParams(drafter=OFF))
    return run_plain(executor("q8", "f16"), undrafted, max_context=CONTEXT)


def random_world(seed: int, num_requests: int) -> World:
    world = World(random.Random(seed))
    rng = world.rng
    shared = rng.choices(range(VOCAB), k=12) * 6
    for index in range(num_requests):
        free = random_request(rng, f"r{index}", shared)
        request = ending_within(rng, free, plain(free)[free.request_id, 0].token_ids)
        alone = plain(request)
        world.truth |= alone
        answer = alone[request.request_id, 0].token_ids
        if request.drafting.references and rng.random() < 0.7:
            texts = (*request.drafting.references, np.array([*shared[-3:], *answer], np.int32))
            request = replace(request, drafting=replace(request.drafting, references=texts))
        world.requests.append(request)
        world.arrivals[request.request_id] = rng.choice([0, 0, rng.randint(1, 15)])
        if rng.random() < 0.15:
            world.aborts[request.request_id] = world.arrivals[request.request_id] + rng.randint(0, 12)
    return world


def maker(world: World, drafters: Drafters) -> Callable[[str], Drafter]:
    answers: Answers = {key: told.token_ids for key, told in world.truth.items()}
    seed = world.rng.randrange(1000)
    scripts = {
        "right": oracle_chain(answers, MAX_NODES),
        "wrong": wrong_chain(answers, 5, VOCAB),
        "mixed": mixed_chain(answers, 9, VOCAB, seed),
        "tree": random_tree(answers, MAX_NODES, VOCAB, seed),
    }

    def make(name: str) -> Drafter:
        if name in scripts:
            return ScriptedDrafter(scripts[name], max_nodes=MAX_NODES)
        return make_drafter(name, drafters)

    return make


def check_world(seed: int, num_requests: int = 6) -> tuple[Statistics, list[Told]]:
    """Run it, checking integrity at each step; pages must all come back, and outputs equal those of plain runs."""
    world = random_world(seed, num_requests)
    rng = world.rng
    model, lengths = executor("q8", "f16", rng.choice(NUM_PAGES)), rng.choice(LENGTH_NAMES)
    drafters, draft_rows, taps = make_drafters(model, lengths)
    engine = Engine(
        model,
        max_context=CONTEXT,
        max_num_seqs=rng.choice([1, 3, 5, 16]),
        max_num_batched_tokens=rng.choice([1, 20, 60, 200]),
        drafter=DrafterChoice(maker(world, drafters), MAX_NODES),
        lengths=make_lengths(lengths),
        draft_rows=draft_rows,
        taps=taps,
        prefix_cache=rng.random() < 0.7,
        sample_rows=sample_rows,
    )
    told: dict[SequenceKey, Told] = {}
    waiting = list(world.requests)
    for clock in range(MAX_STEPS):
        for request in [each for each in waiting if world.arrivals[each.request_id] <= clock]:
            waiting.remove(request)
            engine.add_request(request)
        for request_id, when in world.aborts.items():
            if when == clock:
                engine.abort(request_id)
        if not waiting and not engine.has_work:
            break
        hear(engine, told)
    drain(engine, told)
    assert told.keys() == world.truth.keys()
    for key, mine in told.items():
        compare(mine, world.truth[key], key)
    return engine.statistics, list(told.values())


def compare(mine: Told, alone: Told, key: SequenceKey) -> None:
    if mine.finish_reason == "abort":
        assert mine.token_ids == alone.token_ids[: len(mine.token_ids)], key
        return
    same(mine, alone, key)
    assert mine.prompt_logprobs == alone.prompt_logprobs, key


checked = cache(check_world)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_worlds(seed: int) -> None:
    checked(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_worlds(seed: int) -> None:
    check_world(seed, num_requests=9)


def test_the_worlds_hold_what_they_should() -> None:
    worlds = [checked(seed) for seed in SEEDS]
    statistics = [each for each, _ in worlds]
    answers = [told for _, each in worlds for told in each]
    assert sum(each.num_preemptions for each in statistics) > 5
    assert sum(each.num_cached_tokens for each in statistics) > 100
    assert sum(each.num_accepted_tokens for each in statistics) > 200
    assert sum(each.num_draft_tokens - each.num_accepted_tokens for each in statistics) > 200
    assert {told.finish_reason for told in answers} == {"stop", "length", "abort"}
    assert sum(told.text_stopped for told in answers) > 3
    assert max(size for told in answers for size in told.block_lens) == MAX_NODES + 1
