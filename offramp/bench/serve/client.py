"""One client of the server: asks, reads the stream, keeps the times."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx2

from offramp.bench.serve.chunks import DONE, Chunk, EventLines, StreamError, error_message, read_chunk
from offramp.bench.serve.prompts import Prompt
from offramp.bench.serve.sample import Sample
from offramp.bench.serve.target import Target

CONNECT_SECONDS = 10.0
PAGE_SECONDS = 10.0
"""For a page that a server has at hand: its models, its metrics."""

LARGEST_PAGE = 8 * 2**20
"""Bytes of such a page, and of an error's body."""


JSON = {"Content-Type": "application/json"}


@dataclass(slots=True)
class _Answer:
    """What has come so far."""

    start: float
    chunk_times: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False

    def take(self, chunk: Chunk, now: float) -> None:
        # A finish without text is a token too when nothing came before: the model ended at once.
        if chunk.has_text or (chunk.finish_reason and not self.chunk_times):
            self.chunk_times.append(now)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        if chunk.prompt_tokens is not None:
            self.prompt_tokens = chunk.prompt_tokens
        if chunk.output_tokens is not None:
            self.output_tokens = chunk.output_tokens

    def sample(self) -> Sample:
        """The whole answer. Raises StreamError when something is missing."""
        if self.finish_reason is None:
            raise StreamError("ended early", "the stream ended without a finish reason")
        if self.finish_reason == "error":
            raise StreamError("error in stream", "finish reason error")
        return Sample(
            start=self.start,
            end=self.chunk_times[-1],
            chunk_times=tuple(self.chunk_times),
            prompt_tokens=self.prompt_tokens,
            output_tokens=len(self.chunk_times) if self.output_tokens is None else self.output_tokens,
        )


class Client:
    """Connections to one server, for any number of requests at once. An `api_key` goes to that server only."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        use_proxies: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._api_key = api_key
        self._clock = clock
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=use_proxies,
            follow_redirects=False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def ask(self, target: Target, prompt: Prompt) -> Sample:
        """Send one request and read its answer to the end. Errors become part of the sample."""
        answer = _Answer(self._clock())
        try:
            body = json.dumps(target.body(prompt)).encode()  # ASCII, so that odd characters travel as they were given
            async with self._http.stream("POST", target.url, content=body, headers=JSON) as response:
                await self._check(response)
                lines = EventLines()
                async for data in response.aiter_bytes():
                    now = self._clock()
                    for event in lines.feed(data):
                        answer.done = answer.done or event == DONE
                        if not answer.done:
                            answer.take(read_chunk(event), now)
            return answer.sample()
        except StreamError as error:
            name, detail = error.name, error.detail
        except httpx2.HTTPError as error:
            if answer.done and answer.finish_reason:  # all was said before the connection broke
                return answer.sample()
            name, detail = _name_of(error), reason_of(error)
        return Sample(start=answer.start, end=self._clock(), error=name, detail=self._without_key(detail))

    async def page(self, url: str) -> bytes | None:
        """A page of the server; None when it has none, or takes too long for it."""
        try:
            return await self.fetch(url)
        except StreamError:
            return None

    async def fetch(self, url: str) -> bytes:
        """The same, but raises StreamError that says why there is none."""
        try:
            async with asyncio.timeout(PAGE_SECONDS), self._http.stream("GET", url) as response:
                if response.status_code != 200:
                    raise StreamError(f"HTTP {response.status_code}", "")
                return await _read(response)
        except httpx2.HTTPError as error:
            raise StreamError(_name_of(error), reason_of(error)) from error
        except TimeoutError as error:
            raise StreamError("timeout", f"no answer in {PAGE_SECONDS:g} s") from error

    async def _check(self, response: httpx2.Response) -> None:
        """Raise StreamError unless this is a stream."""
        if response.status_code != 200:
            body = await _read(response)
            try:
                told = error_message(json.loads(body))
            except (ValueError, RecursionError):
                told = error_message(body.decode("utf-8", "replace"))
            raise StreamError(f"HTTP {response.status_code}", told)
        kind = response.headers.get("content-type", "nothing")
        if not kind.startswith("text/event-stream"):
            raise StreamError("bad stream", f"the answer is {kind}, not text/event-stream")

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key, "[key]") if self._api_key else text


async def _read(response: httpx2.Response) -> bytes:
    """The body, cut where it becomes too large."""
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > LARGEST_PAGE:
            break
    return body[:LARGEST_PAGE]


def reason_of(error: BaseException) -> str:
    """What the system said at the root of an error, such as "connection refused"; else the error's own text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return str(error)


def _name_of(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.ConnectError):
        return "can't connect"
    if isinstance(error, httpx2.TimeoutException):
        return "timeout"
    if isinstance(error, (httpx2.NetworkError, httpx2.RemoteProtocolError)):
        return "disconnected"
    return type(error).__name__
