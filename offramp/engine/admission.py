"""What can never be served is refused before it is queued, naming the values and the way out."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from offramp.cache.sequence import pages_for
from offramp.core import Request
from offramp.errors import ContextLengthError, InvalidRequestError, ResourceError
from offramp.model.executor import LayerExecutor


def check_engine(
    executor: LayerExecutor,
    max_context: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    fill: str,
    max_pending: int,
) -> None:
    """Refuse impossible engine settings."""
    settings = {
        "max_context": (max_context, 2, executor.config.max_context),
        "max_num_seqs": (max_num_seqs, 1, 4096),
        "max_num_batched_tokens": (max_num_batched_tokens, 1, 65536),
        "max_pending": (max_pending, 1, 64),
    }
    for name, (value, low, high) in settings.items():
        if not low <= value <= high:
            hint = f"{name} takes an integer in [{low}, {high}] for this model"
            raise InvalidRequestError(f"{name}={value} is impossible", hint=hint, param=name)
    if fill != "deferred":
        raise InvalidRequestError(f"no fill policy is called {fill!r}", hint="known: deferred", param="fill")


def check_request(
    request: Request, vocab_size: int, max_context: int, num_pages: int, known_ids: Container[str]
) -> None:
    """Refuse a request that could never run to its end."""
    if request.request_id in known_ids:
        hint = "finish or abort the first one, or choose another request_id"
        raise InvalidRequestError(f"request {request.request_id!r} is running already", hint=hint, param="request_id")
    prompt = np.asarray(request.prompt_token_ids)
    prompt_len = len(prompt)
    if prompt_len == 0:
        raise InvalidRequestError("the prompt has no tokens", hint="give at least one token", param="prompt")
    outside = prompt[(prompt < 0) | (prompt >= vocab_size)]
    if len(outside):
        hint = f"token ids of this model are 0..{vocab_size - 1}"
        raise InvalidRequestError(f"the prompt holds token id {outside[0]}", hint=hint, param="prompt")
    biased = max(request.params.logit_bias, default=0)
    if biased >= vocab_size:
        hint = f"token ids of this model are 0..{vocab_size - 1}"
        raise InvalidRequestError(f"logit_bias names token id {biased}", hint=hint, param="logit_bias")
    if prompt_len >= max_context:
        raise ContextLengthError(
            f"the prompt has {prompt_len} tokens and the context holds {max_context}, its answer included",
            hint=f"shorten the prompt to at most {max_context - 1} tokens or raise max_context",
            param="prompt",
        )
    _check_pages(request, prompt_len, max_context, num_pages)


def _check_pages(request: Request, prompt_len: int, max_context: int, num_pages: int) -> None:
    max_tokens = request.params.max_tokens
    longest = max_context if max_tokens is None else min(max_context, prompt_len + max_tokens)
    needed = pages_for(longest)
    if needed > num_pages:
        raise ResourceError(
            f"{longest} tokens need {needed} pages of K/V memory, and there are {num_pages}",
            hint="give the K/V cache more memory, or lower max_tokens or max_context",
        )
