"""What callers get back: whole answers, or deltas while they are written."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core import FinishReason, TokenLogprobs
from offramp.errors import OfframpError

PromptLogprobs = tuple[TokenLogprobs | None, ...]
"""One entry a prompt token; None for the first, which nothing predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What it took to answer a request, all its choices together.

    `prefill_seconds` run from submission to the first token, waiting included; `decode_seconds` from there to the last
    one. `tokens_per_second` counts the tokens after each choice's first over `decode_seconds`; None without any.
    """

    prompt_tokens: int
    cached_tokens: int  # prompt tokens whose K/V was cached already
    output_tokens: int
    prefill_seconds: float
    decode_seconds: float
    tokens_per_second: float | None
    finish_reasons: tuple[FinishReason, ...]  # by choice
    mode: str
    mean_exit_layer: float  # layers run per output token
    exact_kv: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOutput:
    """One choice. A `finish_reason` of "error" comes with `error`, and with what was generated before it.

    `text` excludes a stop string, `token_ids` and `logprobs` include the token that completed it, and an end token.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finish_reason: FinishReason
    seed: int
    error: OfframpError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """The answer to one prompt; `prompt` is None when the prompt was given as ids."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: PromptLogprobs | None
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDelta:
    """What one step added to one choice. `text` may be empty while a character or a possible stop string is open.

    `finish_reason` comes with the choice's last delta, `report` with the request's last.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    prompt_logprobs: PromptLogprobs | None
    finish_reason: FinishReason | None
    error: OfframpError | None
    seed: int
    report: Report | None
