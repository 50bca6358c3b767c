"""Which tokens of a verified block become output, and whether the sequence ends there: pure but for the appending.

The earliest position wins. At one position an end token, a stop string or the grammar's end wins over the length.
Tokens behind the end are dropped, so that text, ids, logprobs and usage all end at the same token.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from offramp.core import FinishReason, Sequence


@dataclass(frozen=True, slots=True)
class Committed:
    """The first `count` tokens of the block were appended."""

    count: int
    finish_reason: FinishReason | None
    text_stopped: bool = False
    grammar_ended: bool = False


def commit_tokens(sequence: Sequence, token_ids: Tokens[int]) -> Committed:
    """Append tokens in order up to the end of the sequence, if it comes within them."""
    for index, token in enumerate(token_ids, start=1):
        sequence.tokens.append(token)
        if sequence.matcher is not None:
            sequence.matcher.advance(token)
        if _is_end_token(sequence, token):
            return Committed(index, "stop")
        if _completes_stop_string(sequence, token):
            return Committed(index, "stop", text_stopped=True)
        if _completes_grammar(sequence):
            return Committed(index, "stop", grammar_ended=True)
        if len(sequence) >= sequence.limit:
            return Committed(index, "length")
    return Committed(len(token_ids), None)


def _is_end_token(sequence: Sequence, token: int) -> bool:
    """End tokens are masked until min_tokens; this one was just appended, so the output must be longer than that."""
    params = sequence.request.params
    if sequence.output_len <= params.min_tokens:
        return False
    return token in params.stop_token_ids or (not params.ignore_eos and token in sequence.request.eos_token_ids)


def _completes_stop_string(sequence: Sequence, token: int) -> bool:
    """The watcher sees every token; before min_tokens its answer does not count."""
    if sequence.text_stop is None:
        return False
    completed = sequence.text_stop(token)
    return completed and sequence.output_len >= sequence.request.params.min_tokens


def _completes_grammar(sequence: Sequence) -> bool:
    """Nothing but an end token may follow: the answer is whole without it. Before min_tokens, the next draw fails."""
    matcher = sequence.matcher
    return matcher is not None and sequence.output_len >= sequence.request.params.min_tokens and matcher.ended
