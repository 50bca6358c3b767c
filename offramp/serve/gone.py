"""Clients that go away: whatever still runs for them is given up at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Receive


class WatchClient:
    """`async with WatchClient(receive, give_up) as watch:` calls `give_up` when the client disconnects meanwhile.

    The request's body must have been read. `gone` tells afterwards.
    """

    def __init__(self, receive: Receive, give_up: Callable[[], object]) -> None:
        self._receive = receive
        self._give_up = give_up
        self.gone = False

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._give_up()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
