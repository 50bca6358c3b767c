"""What callers get back: whole answers, or deltas while they are written."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core import FinishReason, TokenLogprobs
from offramp.errors import OfframpError
from offramp.llm.tool_reader import ToolCall

PromptLogprobs = tuple[TokenLogprobs | None, ...]
"""One entry a prompt token; None for the first, which nothing predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What it took to answer a request, all its choices together.

    `prefill_seconds` run from submission to the first token, waiting included; `decode_seconds` from there to the last
    one. `tokens_per_second` counts the tokens after each choice's first over `decode_seconds`; None without any.
    `draft` names the drafters that were allowed. Counts by position start with the token right after the last one; a
    tree has several at one position, of which at most one is accepted.
    """

    prompt_tokens: int
    cached_tokens: int  # prompt tokens whose K/V was cached already
    output_tokens: int
    prefill_seconds: float
    decode_seconds: float
    tokens_per_second: float | None
    finish_reasons: tuple[FinishReason, ...]  # by choice
    mode: str  # that ran
    mode_reason: str | None = None  # why it is not the one that was asked for
    risk: float | None = None  # that a calibrated policy is certified for
    exits: str | None = None  # the pack whose heads tokens may leave by
    mean_exit_layer: float  # layers run per output token
    exact_kv: bool  # no K/V was projected from an exit
    draft: str
    verifier: str  # which decided whether drafts stand
    num_drafts: int  # steps of a choice in which a draft ran
    num_draft_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int  # of those steps: accepted, recovered and bonus ones
    num_draft_tokens_per_pos: tuple[int, ...]
    num_accepted_tokens_per_pos: tuple[int, ...]
    little: str | None = None  # the little model that wrote some of the tokens
    num_little_tokens: int = 0  # of the output; the big model drew the others
    num_differing_tokens: int = 0  # of the little model's, those that plain decoding would not have drawn there
    num_fallbacks: int = 0  # tokens that the little model left to the big one
    num_rollbacks: int = 0  # tokens of the big model in the place of one that the little model wrote

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens that a drafted step yields, the recovered or bonus token included; None before any draft.

        A step in which the answer ended may have none of those two.
        """
        return self.num_emitted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted, in [0, 1]; None before any draft."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOutput:
    """One choice. A `finish_reason` of "error" comes with `error`, and with what was generated before it.

    `text` is all that the model wrote, calls of tools included, which `tool_calls` has once more, read; it excludes a
    stop string, `token_ids` and `logprobs` include the token that completed it, and an end token.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finish_reason: FinishReason
    seed: int
    error: OfframpError | None = None
    drafted: list[bool] | None = None  # a token: a draft foresaw it, or a little model wrote it; `report="tokens"`
    exit_layers: list[int] | None = None  # a token: layers run for it; with `report="tokens"`
    tool_calls: tuple[ToolCall, ...] = ()  # of `chat` with `tools`


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
    num_accepted_tokens: int  # so many of them, the first, were drafted, or written by a little model
    exit_layer: int  # layers run for each of them
    logprobs: tuple[TokenLogprobs, ...] | None
    prompt_logprobs: PromptLogprobs | None
    finish_reason: FinishReason | None
    error: OfframpError | None
    seed: int
    report: Report | None
