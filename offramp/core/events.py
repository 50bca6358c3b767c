"""What a step tells about a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core.request import FinishReason
from offramp.core.speculation import Written
from offramp.errors import OfframpError


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The chosen token's raw log-probability and 1-based rank, and the best tokens in falling order."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]  # (token id, logprob); equal ones by rising id


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """What became of one step's draft of one sequence: the event's first `num_accepted` tokens were drafted."""

    num_nodes_per_pos: tuple[int, ...]  # by depth, from 0
    num_accepted: int  # that became output


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """What one step brought for one sequence: tokens, its end, or both.

    `logprobs` has one entry a token when asked for. `prompt_logprobs` comes once, with choice 0's first token: one
    entry a prompt token, None for the first. `num_cached_tokens` counts prompt tokens found in the prefix cache at the
    first admission. `text_stopped` tells a stop string from a stop or end token, and `grammar_ended` that
    the last token is text, after which the grammar allows nothing.
    """

    request_id: str
    choice: int
    token_ids: tuple[int, ...] = ()
    draft: DraftOutcome | None = None  # None: none ran
    written: Written | None = None  # of a request for which a little model writes
    exit_layer: int | None = None  # layers run for the token, of a request with an exit policy
    exact_kv: bool = True
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    text_stopped: bool = False
    grammar_ended: bool = False
    error: OfframpError | None = None
    num_cached_tokens: int = 0
