"""From rows of logits to tokens, one independent job a row.

`sample_rows_with` does everything but the draw; that is numpy here (`draw_numpy`, the slow twin) and a kernel
in `offramp.native.sampling`, which returns the same token.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core import SamplingParams, Sequence
from offramp.errors import InvalidRequestError, NumericError, OfframpError
from offramp.sample import processors
from offramp.sample.processors import Row, TokenIds
from offramp.sample.race import NoiseKey, race


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """What decides one row's token besides its logits."""

    params: SamplingParams
    seed: int  # the request's resolved seed, 64 bits
    choice: int = 0
    position: int = 0  # output tokens before this one
    prompt_ids: TokenIds = ()  # read under a repetition penalty only
    output_ids: TokenIds = ()  # the `position` tokens before this one, drafts included; read under penalties only
    eos_token_ids: frozenset[int] = frozenset()
    allowed: NDArray[np.bool_] | None = None  # [vocab], from a grammar


def job_behind(sequence: Sequence, token_ids: Items[int], allowed: NDArray[np.bool_] | None) -> RowJob:
    """The job of the row that follows these tokens, which are no output of the sequence yet."""
    output = sequence.output_ids
    if token_ids:
        output = np.concatenate([output, np.array(token_ids, dtype=np.int32)])
    return RowJob(
        params=sequence.request.params,
        seed=sequence.request.seed,
        choice=sequence.choice,
        position=len(output),
        prompt_ids=sequence.prompt_ids,
        output_ids=output,
        eos_token_ids=sequence.request.eos_token_ids,
        allowed=allowed,
    )


class Draw(Protocol):
    """Filters and draws: temperature, top-k, top-p, min-p, race. The row has a finite logit and no NaN or +inf."""

    def __call__(self, row: Row, params: SamplingParams, key: NoiseKey) -> int: ...


def draw_numpy(row: Row, params: SamplingParams, key: NoiseKey) -> int:
    """The draw that every other one must equal."""
    row = processors.keep_top_k(row, params.top_k)
    row = processors.keep_top_p(row, params.temperature, params.top_p)
    row = processors.keep_min_p(row, params.temperature, params.min_p)
    return race(row, params.temperature, key)


def sample_rows_numpy(logits: NDArray[np.float32], jobs: Items[RowJob]) -> list[int | OfframpError]:
    """A token or an error for each row; an error never touches the other rows."""
    return sample_rows_with(draw_numpy, logits, jobs)


def sample_rows_with(draw: Draw, logits: NDArray[np.float32], jobs: Items[RowJob]) -> list[int | OfframpError]:
    """A token or an error for each row of logits [rows, vocab], which stay as they are."""
    assert len(logits) == len(jobs)
    best = logits.argmax(axis=1).tolist()  # finds a NaN or +inf too, wherever it is
    return [_sample_row(draw, row, job, token) for row, job, token in zip(logits, jobs, best, strict=True)]


def _sample_row(draw: Draw, raw: Row, job: RowJob, best: int) -> int | OfframpError:
    if not -np.inf < raw[best] < np.inf:
        return _numeric_error(raw, best)
    row = adjusted(raw, job)
    if row is not raw:
        best = int(row.argmax())
        if row[best] == -np.inf:
            return _nothing_left(job)
    if job.params.greedy:
        return best
    return draw(row, job.params, NoiseKey(seed=job.seed, choice=job.choice, position=job.position))


def changes_rows(params: SamplingParams, position: int) -> bool:
    """Whether bias, penalties or the minimum length change rows at this output position; grammars do in any case."""
    penalties = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    return bool(params.logit_bias or penalties) or position < params.min_tokens


def adjusted(raw: Row, job: RowJob) -> Row:
    """The row after bias, penalties and masks: `raw` itself when none applies, else a copy."""
    params = job.params
    if job.allowed is None and not changes_rows(params, job.position):
        return raw
    row = raw.copy()
    if params.logit_bias:
        processors.add_bias(row, params.logit_bias)
    if params.repetition_penalty != 1.0:
        seen = np.concatenate([_ids(job.prompt_ids), _ids(job.output_ids)])
        processors.penalize_repetition(row, seen, params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        processors.penalize_frequency(row, _ids(job.output_ids), params.presence_penalty, params.frequency_penalty)
    if job.allowed is not None:
        processors.restrict(row, job.allowed)
    if job.position < params.min_tokens:
        processors.forbid(row, job.eos_token_ids.union(params.stop_token_ids))
    return row


def _ids(ids: TokenIds) -> NDArray[np.intp]:
    return np.asarray(ids, dtype=np.intp)


def _numeric_error(raw: Row, best: int) -> NumericError:
    what = "only -inf" if raw[best] == -np.inf else f"{raw[best]} for token {best}"
    return NumericError(
        f"the model's logits hold {what}", hint="the weights may be damaged: check or fetch the model again"
    )


def _nothing_left(job: RowJob) -> InvalidRequestError:
    hint = (
        "the grammar allows no token here"
        if job.allowed is not None
        else "logit_bias or min_tokens rule out every token"
    )
    if job.allowed is not None and job.position < job.params.min_tokens:
        hint = "the grammar wants to end before min_tokens: lower min_tokens"
    return InvalidRequestError(f"no token can be drawn at output position {job.position}", hint=hint)
