"""What every route needs, and what it knows of the request before its body is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from offramp.serve.body import read_body
from offramp.serve.gone import WatchClient
from offramp.serve.hosted import Live
from offramp.serve.models import Models
from offramp.serve.request_metrics import RequestTrace
from offramp.serve.served import Served
from offramp.serve.settings import ServerSettings
from offramp.serve.strict_json import parse_object

T = TypeVar("T")

LARGE_BYTES = 64 << 10
"""Of a body that takes long to understand."""

CALLER = "offramp.caller"
"""Key of the `Caller` in a request's scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, let in already."""

    request_id: str
    client: str  # takes turns with other clients
    salt: str  # whose cached K/V may be shared: all of the same salt
    trace: RequestTrace


@dataclass(frozen=True, slots=True)
class Site:
    """The server's parts."""

    models: Models
    settings: ServerSettings
    _large: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "offramp-large"))

    async def body(self, request: Request) -> bytes:
        """The body's bytes, in time and bounded."""
        settings = self.settings
        return await read_body(request, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds)

    async def values(self, body: bytes) -> dict[str, object]:
        """The object that a body holds."""
        return await asyncio.get_running_loop().run_in_executor(self._pool_for(body), parse_object, body)

    @asynccontextmanager
    async def read(
        self, request: Request, ask: Callable[[Mapping[str, object], Served], T]
    ) -> AsyncIterator[tuple[T, Live]]:
        """The body, understood, and the model that it is for, which stays in memory meanwhile.

        In a thread: templates and long texts take their time, and hold up nobody else. Large bodies take turns, so that
        small ones find a thread, and at most one of them holds Python up.
        """
        body = await self.body(request)
        pool = self._pool_for(body)
        if len(self.models) == 1:
            async with self.models.held(None, request.receive) as live:
                yield await _while_there(request, pool, lambda: ask(parse_object(body), live.served)), live
            return
        values = await _while_there(request, pool, lambda: parse_object(body))
        name = values.get("model")
        caller_of(request.scope).trace.asks(self.models.find(name).name)
        async with self.models.held(name, request.receive) as live:
            yield await _while_there(request, pool, lambda: ask(values, live.served)), live

    def _pool_for(self, body: bytes) -> ThreadPoolExecutor | None:
        return self._large if len(body) > LARGE_BYTES else None


async def _while_there(request: Request, pool: ThreadPoolExecutor | None, act: Callable[[], T]) -> T:
    """What comes of it in a thread. It is not begun for a client that left meanwhile: ClientDisconnect."""
    async with WatchClient(request.receive, lambda: None) as watch:

        def act_unless_gone() -> T:
            if watch.gone:
                raise ClientDisconnect
            return act()

        result = await asyncio.get_running_loop().run_in_executor(pool, act_unless_gone)
    if watch.gone:  # nobody after us would hear of it
        raise ClientDisconnect
    return result


def caller_of(scope: Scope) -> Caller:
    """Who sent this request."""
    caller = scope[CALLER]
    assert isinstance(caller, Caller)
    return caller
