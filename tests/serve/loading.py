"""A load of everything that clients do to a server: right requests, bad ones, slow readers, and those who leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.serve.asking import CHAT, COMPLETIONS, chunks_of, error_of, messages
from tests.serve.gathering import gathered, told

Json = dict[str, Any]

JSON = {"content-type": "application/json"}
MODEL = "toy"
SHARES = {"leaves": 0.2, "bad": 0.1, "slow": 0.1, "asks": 0.6}
DRAFTS: Sequence[Json] = ({}, {"draft": "off"}, {"draft": "ngram"}, {"draft": "auto"})


@dataclass(frozen=True, slots=True)
class Case:
    """A request whose answer is known: greedy, or drawn with a seed."""

    path: str
    body: Json


@dataclass(frozen=True, slots=True)
class Bad:
    """A request that must be refused with this status."""

    content: bytes
    status: int = 400
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)


def cases(count: int) -> list[Case]:
    """Chats and completions of all lengths, a third with stop strings, some with several choices or logprobs."""
    random_ = random.Random(3)
    return [_case(number, random_) for number in range(count)]


def _case(number: int, random_: random.Random) -> Case:
    text = "".join(random_.choice("ab hello12 \u00e9") for _ in range(random_.randint(1, 90)))
    body: Json = {"max_tokens": random_.randint(1, 40), "temperature": 0, "ignore_eos": number % 2 == 0}
    if number % 3 == 0:
        body["stop"] = random_.sample("aeiou1 0", 3)
    if number % 5 == 0:
        body |= {"temperature": 0.8, "seed": number, "n": 2}
    if number % 2:
        return Case(CHAT, {**body, "messages": messages(text), **({"logprobs": True} if number % 7 == 0 else {})})
    return Case(COMPLETIONS, {**body, "prompt": text, **({"logprobs": 2, "echo": True} if number % 8 == 0 else {})})


def _dumped(**values: object) -> Bad:
    return Bad(json.dumps({"prompt": "a", **values}).encode())


BAD = (
    Bad(b""),
    Bad(b"{"),
    Bad(b"[" * 5000),
    Bad(b'{"prompt": "\xff"}'),
    Bad(b'{"prompt": "a", "temperature": NaN}'),
    Bad(b'{"prompt": "a", "top_p": 1e999}'),
    Bad(b'{"prompt": "\\ud800"}'),
    Bad(b'{"prompt": "a", "prompt": "b"}'),
    Bad(b'{"prompt": "a"}', headers={"content-type": "text/plain"}),
    Bad(b'{"prompt": "a", "model": "other"}', 404),
    Bad(b'{"prompt": "' + b"x" * 70_000 + b'"}', 413),
    _dumped(stop=""),
    _dumped(n="2"),
    _dumped(max_tokens=-1),
    _dumped(tools=[{}]),
    _dumped(logit_bias={"x": 1}),
    _dumped(prompt=[5] * 5000),
    _dumped(prompt=[-1]),
    _dumped(offramp={"draft": "telepathy"}),
    _dumped(messages=[{"role": "wizard", "content": "a"}]),
)
"""For completions, on a server whose largest body is 64 KiB."""


class Load:
    """Sends requests to one server and checks every answer. What request number i is depends on i alone."""

    def __init__(self, client: httpx2.AsyncClient, known: Sequence[tuple[Case, Json]]) -> None:
        self._client = client
        self._known = known
        self.num_sent: Counter[str] = Counter()  # by kind
        self.num_answers: Counter[int] = Counter()  # by status, whole ones alone

    async def run(self, count: int, *, concurrency: int, before: Callable[[int], object] = lambda number: None) -> None:
        """So many requests, so many at once; `before` is told each number."""
        numbers = iter(range(count))

        async def one_client() -> None:
            for number in numbers:
                before(number)
                await self._send(random.Random(number))

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(one_client())

    async def _send(self, random_: random.Random) -> None:
        [kind] = random_.choices(list(SHARES), list(SHARES.values()))
        self.num_sent[kind] += 1
        if kind == "bad":
            await self._refused(random_.choice(BAD))
            return
        case, answer = random_.choice(self._known)
        body = {**case.body, "model": MODEL, "offramp": random_.choice(DRAFTS)}
        if random_.random() < 0.5:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if kind == "leaves":
            await self._left(case.path, body, random_)
        else:
            assert told(await self._answered(case.path, body, slowly=kind == "slow")) == answer, body

    async def _refused(self, bad: Bad) -> None:
        response = await self._client.post(COMPLETIONS, content=bad.content, headers=bad.headers)
        self.num_answers[response.status_code] += 1
        error_of(response, bad.status)

    async def _answered(self, path: str, body: Json, *, slowly: bool) -> Json:
        async with self._client.stream("POST", path, json=body) as response:
            text = ""
            async for part in response.aiter_text():
                text += part
                if slowly:
                    await asyncio.sleep(0.02)
            self.num_answers[response.status_code] += 1
            assert response.status_code == 200, text
        return gathered(chunks_of(text)) if body.get("stream") else json.loads(text)

    async def _left(self, path: str, body: Json, random_: random.Random) -> None:
        """Go away: while the body is sent, while the answer is made, or after some chunks of it."""
        if random_.random() < 0.2:
            await self._left_within_the_body(path, json.dumps(body).encode(), random_)
            return
        patience = random_.uniform(0, 0.05)
        num_parts = random_.randint(0, 3)
        try:
            async with (
                asyncio.timeout(patience),
                self._client.stream("POST", path, json={**body, "max_tokens": 150, "ignore_eos": True}) as response,
            ):
                assert response.status_code == 200
                async for _ in response.aiter_bytes():
                    if num_parts == 0:
                        break
                    num_parts -= 1
        except TimeoutError:
            pass

    async def _left_within_the_body(self, path: str, raw: bytes, random_: random.Random) -> None:
        async def half() -> AsyncIterator[bytes]:
            yield raw[: random_.randrange(len(raw))]
            await asyncio.sleep(30)

        headers = {**JSON, "content-length": str(len(raw))}
        try:
            async with asyncio.timeout(random_.uniform(0.001, 0.02)):
                await self._client.post(path, content=half(), headers=headers)
        except TimeoutError:
            pass
