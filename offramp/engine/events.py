"""What a step tells about one sequence. Logprobs are those of the model's raw distribution."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from offramp.core import DraftOutcome, FinishReason, TokenEvent, TokenLogprobs, TokenTree, Verdict
from offramp.engine.commit import Committed
from offramp.engine.task import Task
from offramp.errors import OfframpError
from offramp.sample.logprobs import raw_logprobs


def block_event(
    task: Task, tree: TokenTree, verdict: Verdict, done: Committed, logits: NDArray[np.float32], layers: int
) -> TokenEvent:
    """The event of a block just appended; logits [1 + draft nodes, vocab] are those of its place, `layers` deep."""
    sequence, params = task.sequence, task.sequence.request.params
    token_ids = verdict.token_ids[: done.count]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    if params.logprobs is not None:
        rows = verdict.rows[: done.count]
        logprobs = tuple(
            raw_logprobs(logits[row], token, params.logprobs) for row, token in zip(rows, token_ids, strict=True)
        )
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    written = verdict.written
    first = sequence.output_len == done.count
    if first and sequence.choice == 0 and params.prompt_logprobs is not None:
        prompt_logprobs = (None, *task.prompt_logprobs)
    return TokenEvent(
        request_id=sequence.request.request_id,
        choice=sequence.choice,
        token_ids=token_ids,
        draft=_outcome(tree, min(done.count, len(verdict.accepted))) if len(tree) and written is None else None,
        written=None if written is None else written.cut(done.count),
        exit_layer=None if sequence.request.exits.policy is None else layers,
        exact_kv=task.exact_kv,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        finish_reason=done.finish_reason,
        text_stopped=done.text_stopped,
        grammar_ended=done.grammar_ended,
        num_cached_tokens=task.num_cached or 0,
    )


def _outcome(tree: TokenTree, num_accepted: int) -> DraftOutcome:
    per_pos = Counter(tree.depths())
    return DraftOutcome(tuple(per_pos[depth] for depth in range(len(per_pos))), num_accepted)


def end_event(task: Task, reason: FinishReason, error: OfframpError | None) -> TokenEvent:
    """The event of a sequence that ended without a new token."""
    return TokenEvent(
        request_id=task.sequence.request.request_id,
        choice=task.sequence.choice,
        finish_reason=reason,
        error=error,
        exact_kv=task.exact_kv,
        num_cached_tokens=task.num_cached or 0,
    )


def extend_prompt_logprobs(task: Task, logits: NDArray[np.float32]) -> None:
    """Add entries for the next prompt tokens; logits [rows, vocab] predict them. Raises NumericError."""
    k = task.sequence.request.params.prompt_logprobs
    assert k is not None
    first = len(task.prompt_logprobs) + 1
    following = task.sequence.prompt_ids[first : first + len(logits)].tolist()
    task.prompt_logprobs += [raw_logprobs(row, token, k) for row, token in zip(logits, following, strict=True)]
