"""Thousands of requests, some of them given up: right answers to the others, all pages back, no memory kept."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from offramp import LLM, SamplingParams
from offramp.llm import LoadedModel
from offramp.llm.serving import Serving
from offramp.serve.worker import Worker
from tests.serve.memory import anonymous_bytes
from tests.serve.reading import answer, ask, working

pytestmark = pytest.mark.slow

NUM_REQUESTS = 3000
WARM_UP = 600
CONCURRENCY = 32
MOST_BYTES_A_REQUEST = 50_000


@dataclass(frozen=True)
class Case:
    prompt: str
    params: SamplingParams


def cases() -> list[Case]:
    """A hundred prompts of all lengths, greedy, a third of them with stop strings."""
    random_ = random.Random(3)
    found = []
    for number in range(100):
        prompt = "".join(random_.choice("ab hello12 ") for _ in range(random_.randint(1, 120)))
        stop = tuple(random_.sample("aeiou1 0", 3)) if number % 3 == 0 else ()
        params = SamplingParams(
            temperature=0, seed=1, max_tokens=random_.randint(1, 40), stop=stop, ignore_eos=number % 2 == 0
        )
        found.append(Case(prompt, params))
    return found


@pytest.mark.parametrize("draft", ["off", "ngram"])
@pytest.mark.usefixtures("quick_costs")
def test_soak(toy_model: LoadedModel, draft: str) -> None:
    quiet = LLM.from_loaded(toy_model, Serving(draft="off"))
    known = [(case, quiet.generate(case.prompt, case.params)[0].outputs) for case in cases()]
    kinds: Counter[str] = Counter()
    memory: list[int] = []
    serving = Serving(draft=draft, draft_length="fixed", max_num_seqs=12, max_num_batched_tokens=64)

    async def client(worker: Worker, number: int, random_: random.Random) -> None:
        case, expected = random_.choice(known)
        ticket = await worker.submit(ask(toy_model, case.prompt, case.params, serving=serving), client=str(number % 5))
        if random_.random() < 0.2:
            for _ in range(random_.randint(0, 3)):
                if await anext(ticket, None) is None:
                    break
            if random_.random() < 0.5:
                ticket.cancel()
                async for _ in ticket:
                    pass
            kinds["given up"] += 1
            return  # the others are dropped
        if random_.random() < 0.05:
            await asyncio.sleep(0.05)  # a slow reader
        assert (await answer(toy_model, ticket)).outputs == expected
        kinds["answered"] += 1

    async def serve() -> None:
        async with working(toy_model, serving=serving) as worker:
            numbers = iter(range(NUM_REQUESTS))
            random_ = random.Random(7)

            async def clients() -> None:
                for number in numbers:
                    if number in (WARM_UP, NUM_REQUESTS - 1):
                        memory.append(anonymous_bytes())
                    await client(worker, number, random_)

            await asyncio.gather(*(clients() for _ in range(CONCURRENCY)))
            assert await worker.drain(60) == 0
            statistics = worker.statistics
            assert statistics.num_finished["error"] == 0
            assert sum(statistics.num_finished.values()) <= NUM_REQUESTS  # those given up while they waited are not its
            assert statistics.num_preemptions + statistics.num_cached_tokens > 0

    asyncio.run(serve())
    assert kinds["answered"] + kinds["given up"] == NUM_REQUESTS
    assert 0.17 < kinds["given up"] / NUM_REQUESTS < 0.23
    assert (memory[1] - memory[0]) / (NUM_REQUESTS - WARM_UP) < MOST_BYTES_A_REQUEST
