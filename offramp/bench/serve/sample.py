"""What became of one request, as its client saw it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Times are seconds of one clock. `error` names what went wrong, "" for an answer; `detail` may say more."""

    start: float  # when it was sent
    end: float  # when the last chunk with tokens came, or the error
    chunk_times: tuple[float, ...] = ()  # of chunks with tokens
    prompt_tokens: int | None = None  # as the server counted; None: it did not say
    output_tokens: int = 0  # as the server counted, or the chunks
    error: str = ""
    detail: str = ""

    @property
    def first_token_seconds(self) -> float:
        """Time to first token; an answer always has one."""
        return self.chunk_times[0] - self.start

    @property
    def gaps(self) -> list[float]:
        """Between chunks."""
        return [later - earlier for earlier, later in pairwise(self.chunk_times)]

    @property
    def seconds_per_token(self) -> float | None:
        """Mean after the first token; None for a single one."""
        if self.output_tokens < 2:
            return None
        return (self.end - self.chunk_times[0]) / (self.output_tokens - 1)
