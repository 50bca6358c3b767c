"""The time of a request, which several models share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from offramp.serve.errors import expired


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """So many seconds from `began` on."""

    seconds: float
    began: float  # by `time.perf_counter`

    @asynccontextmanager
    async def bound(self) -> AsyncIterator[None]:
        """What runs within is cancelled when the time is up: HttpError (408)."""
        try:
            async with asyncio.timeout(self.seconds - (time.perf_counter() - self.began)):
                yield
        except TimeoutError as error:
            raise expired(self.seconds) from error
