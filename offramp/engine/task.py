"""A sequence at work: what the caller wants of it and the K/V it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from offramp.cache.sequence import SequenceCache
from offramp.core import Sequence, TokenLogprobs


@dataclass(slots=True, eq=False)
class Task:
    """One sequence and its cache. A `leader` is the first choice of the request, whose prompt pages this one awaits."""

    sequence: Sequence
    cache: SequenceCache
    leader: Task | None = None
    exact_kv: bool = True  # no K/V of the sequence was ever projected from an exit
    num_cached: int | None = None  # prompt tokens found in the prefix cache at first admission
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)  # of prompt tokens 1, 2, ...

    @property
    def behind(self) -> int:
        """Tokens without K/V in the first layer; the last of them yields the next token."""
        return len(self.sequence) - self.cache.fill.filled

    @property
    def wants_prompt_logprobs(self) -> bool:
        sequence = self.sequence
        asked = sequence.request.params.prompt_logprobs is not None and sequence.choice == 0
        return asked and len(self.prompt_logprobs) < sequence.prompt_len - 1

    @property
    def adoptable(self) -> int:
        """Leading tokens that need no rows of their own if their K/V is cached."""
        return len(self.prompt_logprobs) if self.wants_prompt_logprobs else len(self.sequence) - 1

    @property
    def awaits_leader(self) -> bool:
        leader = self.leader
        return leader is not None and leader.sequence.finish_reason is None and leader.sequence.output_len == 0
