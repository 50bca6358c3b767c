"""What callers ask for, and the sequences that come of it."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from offramp.core.grammar import Grammar
from offramp.core.ids import IdBuffer, Ids
from offramp.params import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]

VerifierName = Literal["exact", "rejection"]
"""Which rule decides whether drafts stand: that the same tokens come as without them, or that the same law holds."""
EXACT: VerifierName = "exact"
REJECTION: VerifierName = "rejection"

SequenceKey = tuple[str, int]
"""(request id, choice): names a sequence everywhere in the engine."""

TextStop = Callable[[int], bool]
"""Fed each committed token of one sequence in order; True when that token completed a stop string. May be fed on after
a True (min_tokens not reached yet). End tokens that finish the sequence are not fed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftParams:
    """A request's say in speculation, which never changes its tokens, or by `rejection` never their distribution."""

    drafter: str | None = None  # None: the engine's own choice; "off": none
    max_draft: int | None = None  # most draft tokens of a sequence in one step; 0 is off, None no limit of its own
    references: tuple[Ids, ...] = ()  # texts that the answer may copy from, as ids
    verifier: VerifierName = EXACT

    @property
    def off(self) -> bool:
        """Nothing is drafted for the request, nor learned from it."""
        return self.drafter == "off" or self.max_draft == 0


ENGINE_CHOICE = DraftParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitParams:
    """Which tokens of a request may leave the network early. Drafts and exits exclude each other."""

    policy: str | None = None  # a name that the engine knows; None: every token runs all layers


FULL_DEPTH = ExitParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the caller wants, with ids instead of text and the seed resolved. A smaller `priority` is served first."""

    request_id: str
    prompt_token_ids: abc.Sequence[int] | Ids
    params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    seed: int
    priority: int = 0
    text_stop: Callable[[int], TextStop] | None = None  # makes the stop-string watcher of one choice
    grammar: Grammar | None = None  # what the output must be
    cache_salt: str = ""  # requests share cached K/V and learned texts only under the same salt
    drafting: DraftParams = ENGINE_CHOICE
    exits: ExitParams = FULL_DEPTH
    big_little: str | None = None  # the policy by which a little model's tokens may stand; None: no other model writes

    @property
    def drafts_off(self) -> bool:
        """Nothing is drafted for the request, nor learned from it.

        So it asked, or its tokens may leave early, or another model writes some of them.
        """
        return self.drafting.off or self.exits.policy is not None or self.big_little is not None


class Sequence:
    """One choice of a request: its tokens (prompt, then output) and how it ended. Only commit appends to it.

    `matcher` has followed exactly the output; it outlives the K/V, so preemption does not touch it.
    """

    __slots__ = (
        "_prompt_len",
        "arrival",
        "choice",
        "finish_reason",
        "limit",
        "matcher",
        "request",
        "text_stop",
        "tokens",
    )

    def __init__(self, request: Request, choice: int, *, arrival: int, max_context: int) -> None:
        params = request.params
        self.request = request
        self.choice = choice
        self.arrival = arrival
        self.tokens = IdBuffer(request.prompt_token_ids)
        self._prompt_len = len(self.tokens)
        wanted = max_context if params.max_tokens is None else self._prompt_len + params.max_tokens
        self.limit = min(max_context, wanted)  # tokens at which the sequence ends with "length"
        self.text_stop = request.text_stop(choice) if request.text_stop and params.stop else None
        self.matcher = None if request.grammar is None else request.grammar.matcher()
        self.finish_reason: FinishReason | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> SequenceKey:
        return self.request.request_id, self.choice

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of service: smaller is served first, larger is preempted first."""
        return self.request.priority, self.arrival, self.choice

    @property
    def prompt_len(self) -> int:
        return self._prompt_len

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self._prompt_len

    @property
    def prompt_ids(self) -> Ids:
        return self.tokens.view[: self._prompt_len]

    @property
    def output_ids(self) -> Ids:
        return self.tokens.view[self._prompt_len :]
