"""When requests go out and when it is over; what is sent."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest

from offramp.bench.serve.load import Load, arrivals, run_load
from offramp.bench.serve.prompts import Prompt, random_prompts, read_prompts
from offramp.bench.serve.sample import Sample
from offramp.errors import InvalidRequestError

PROMPTS = [Prompt(str(number), 4) for number in range(12)]


class World:
    """Requests that take a given time each, and how many there are at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.seen: list[str] = []
        self.now = self.most = 0
        self.cancelled = 0

    async def ask(self, prompt: Prompt) -> Sample:
        assert isinstance(prompt.content, str)
        self.seen.append(prompt.content)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1
        return Sample(start=0.0, end=1.0, chunk_times=(1.0,), output_tokens=1)


def load_of(world: World, *, max_concurrency: int | None = None, limit: float = 60.0, interrupt: float = 0.0) -> Load:
    """All prompts at once; with `interrupt` the task is cancelled after so many seconds, as by Ctrl-C."""

    async def run() -> Load:
        task = asyncio.ensure_future(
            run_load(PROMPTS, world.ask, due=[0.0] * 12, max_concurrency=max_concurrency, duration_limit=limit)
        )
        if interrupt:
            await asyncio.sleep(interrupt)
            task.cancel()
        return await task

    return asyncio.run(run())


@pytest.mark.parametrize(("max_concurrency", "most"), [(None, 12), (1, 1), (5, 5), (40, 12)])
def test_no_more_at_once_than_allowed(max_concurrency: int | None, most: int) -> None:
    world = World(0.005)
    load = load_of(world, max_concurrency=max_concurrency)
    assert (world.most, load.max_in_flight) == (most, most)
    assert world.seen == [prompt.content for prompt in PROMPTS]
    assert (len(load.samples), load.num_cut, load.num_unsent, load.ended_by) == (12, 0, 0, "done")


def test_the_limit_is_hard() -> None:
    world = World(60.0)
    load = load_of(world, max_concurrency=4, limit=0.05)
    assert (len(load.samples), load.num_cut, load.num_unsent, load.ended_by) == (0, 4, 8, "duration limit")
    assert (world.cancelled, load.num_in_flight) == (4, 0)
    assert 0.05 <= load.end - load.start < 5


def test_an_interrupt_returns_what_was_measured() -> None:
    class Mixed(World):
        async def ask(self, prompt: Prompt) -> Sample:
            self._seconds = 0.0 if prompt.content in ("0", "1") else 60.0
            return await super().ask(prompt)

    world = Mixed(0.0)
    load = load_of(world, max_concurrency=3, interrupt=0.1)
    assert (len(load.samples), load.num_cut, load.num_unsent, load.ended_by) == (2, 3, 7, "interrupt")
    assert world.cancelled == 3


def test_requests_wait_until_they_are_due() -> None:
    sent: list[float] = []

    async def ask(prompt: Prompt) -> Sample:
        sent.append(asyncio.get_running_loop().time())
        return Sample(start=0.0, end=1.0, chunk_times=(1.0,))

    due = [0.0, 0.02, 0.08]
    asyncio.run(run_load(PROMPTS[:3], ask, due=due, max_concurrency=None, duration_limit=60.0))
    assert all(later - sent[0] >= seconds - 0.002 for later, seconds in zip(sent, due, strict=True))


def test_arrivals_are_a_poisson_process() -> None:
    due = arrivals(20_000, 8.0, seed=3)
    gaps = np.diff(due)
    assert due[0] == 0.0
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert arrivals(20_000, 8.0, seed=3) == due
    assert arrivals(3, 8.0, seed=4) != due[:3]
    assert arrivals(3, math.inf, seed=0) == [0.0] * 3


def test_random_prompts_repeat_by_seed_and_share_no_beginning() -> None:
    prompts = random_prompts("completions", count=200, input_len=16, output_len=5, seed=7)
    texts = [str(prompt.content) for prompt in prompts]
    assert {len(text.split()) for text in texts} == {16}
    assert len({tuple(text.split()[:6]) for text in texts}) == 200
    assert {prompt.output_len for prompt in prompts} == {5}
    assert random_prompts("completions", count=200, input_len=16, output_len=5, seed=7) == prompts
    [chat, *_] = random_prompts("chat", count=1, input_len=16, output_len=5, seed=7)
    assert chat.content == [{"role": "user", "content": texts[0]}]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_prompts_of_a_file(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "b"}]
    path = write(tmp_path / "x.jsonl", {"prompt": "a", "id": 1}, "\n", {"messages": messages}, "not read")
    assert read_prompts(path, "chat", count=2, output_len=3) == [
        Prompt([{"role": "user", "content": "a"}], 3),
        Prompt(messages, 3),
    ]
    assert read_prompts(path, "completions", count=1, output_len=3) == [Prompt("a", 3)]


@pytest.mark.parametrize(
    ("lines", "count", "match"),
    [
        (["{oops\n"], None, "line 1 is not JSON"),
        ([{"prompt": "a"}, [1]], None, "line 2 is not an object"),
        ([{"prompt": ""}], None, "neither"),
        ([{"prompt": "a", "messages": [{}]}], None, "neither"),
        ([{"messages": [{"role": "user", "content": "b"}]}], None, "has messages"),
        ([], None, "0 prompts"),
        ([{"prompt": "a"}], 2, "1 prompts, not 2"),
        (["[" * 100_000 + "\n"], None, "not JSON"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, lines: list[object], count: int | None, match: str) -> None:
    path = write(tmp_path / "x.jsonl", *lines)
    with pytest.raises(InvalidRequestError, match=match):
        read_prompts(path, "completions", count=count, output_len=3)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    for name, match in (("none", "can't read"), (".", "can't read"), ("x", "x, line 1 is not UTF-8")):
        with pytest.raises(InvalidRequestError, match=match):
            read_prompts(tmp_path / name, "chat", count=None, output_len=3)
