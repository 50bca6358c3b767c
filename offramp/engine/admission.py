"""What can never be served is refused before it is queued, naming the values and the way out."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from itertools import pairwise
from typing import get_args

import numpy as np

from offramp.cache.sequence import pages_for
from offramp.core import EXACT, Request
from offramp.engine.exit_points import ExitBatching
from offramp.errors import ContextLengthError, InvalidRequestError, ResourceError
from offramp.exits.policy import ExitPolicy, Fill
from offramp.model.executor import LayerExecutor
from offramp.params import check_choice, check_int, shown

MAX_NUM_SEQS = 4096
MAX_NUM_BATCHED_TOKENS = 65536
MAX_PENDING = 64


def check_engine(
    executor: LayerExecutor, *, max_context: int, max_num_seqs: int, max_num_batched_tokens: int, max_pending: int
) -> None:
    """Refuse impossible engine settings."""
    check_int("max_context", max_context, 2, executor.config.max_context)
    check_batching(max_num_seqs, max_num_batched_tokens)
    check_int("max_pending", max_pending, 1, MAX_PENDING)


def check_batching(max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """Those of the settings that no model has a say in."""
    check_int("max_num_seqs", max_num_seqs, 1, MAX_NUM_SEQS)
    check_int("max_num_batched_tokens", max_num_batched_tokens, 1, MAX_NUM_BATCHED_TOKENS)


def check_exits(policies: Mapping[str, ExitPolicy], batching: str, num_layers: int) -> None:
    """Refuse exit points that the model does not have, and the literal barrier for more than one policy."""
    check_choice("exit_batching", batching, get_args(ExitBatching))
    if batching == "literal" and len(policies) > 1:
        hint = "a token comes from the depth where all rows are sure, which must be an exit point of each"
        raise InvalidRequestError(f"exit_batching='literal' with {len(policies)} policies", hint=hint)
    for name, policy in policies.items():
        check_choice(f"fill of exit policy {name!r}", policy.fill, get_args(Fill))
        bounds = (0, *policy.layers, num_layers)
        if any(shallow >= deep for shallow, deep in pairwise(bounds)):
            hint = f"exit points of this model are layers 1..{num_layers - 1}, in rising order"
            raise InvalidRequestError(f"exit policy {name!r} exits after layers {list(policy.layers)}", hint=hint)


def check_request(
    request: Request,
    vocab_size: int,
    max_context: int,
    num_pages: int,
    known_ids: Container[str],
    known_policies: Collection[str],
    known_little: Collection[str] = (),
) -> None:
    """Refuse a request that could never run to its end."""
    if request.request_id in known_ids:
        hint = "finish or abort the first one, or choose another request_id"
        raise InvalidRequestError(f"request {request.request_id!r} is running already", hint=hint, param="request_id")
    prompt = np.asarray(request.prompt_token_ids)
    prompt_len = len(prompt)
    if prompt_len == 0:
        raise InvalidRequestError("the prompt has no tokens", hint="give at least one token", param="prompt")
    check_ids("prompt", prompt[(prompt < 0) | (prompt >= vocab_size)][:1].tolist(), vocab_size)
    check_ids("stop_token_ids", request.params.stop_token_ids, vocab_size)
    check_ids("logit_bias", request.params.logit_bias, vocab_size)
    check_prompt_len(prompt_len, max_context)
    _check_pages(request, prompt_len, max_context, num_pages)
    _check_exits(request, known_policies)
    _check_little(request, known_little)


def check_prompt_len(prompt_len: int, max_context: int, param: str = "prompt") -> None:
    """Refuse a prompt that leaves no room for an answer; `param` is what its caller knows it by."""
    if prompt_len >= max_context:
        raise ContextLengthError(
            f"the prompt has {prompt_len} tokens and the context holds {max_context}, its answer included",
            hint=f"shorten the prompt to at most {max_context - 1} tokens or raise max_context",
            param=param,
        )


def check_ids(param: str, token_ids: Iterable[int], vocab_size: int) -> None:
    """Refuse ids that the model does not know."""
    for token in token_ids:
        if not 0 <= token < vocab_size:
            hint = f"token ids of this model are 0..{vocab_size - 1}"
            raise InvalidRequestError(f"{param} holds token id {shown(token)}", hint=hint, param=param)


def _check_pages(request: Request, prompt_len: int, max_context: int, num_pages: int) -> None:
    max_tokens = request.params.max_tokens
    longest = max_context if max_tokens is None else min(max_context, prompt_len + max_tokens)
    needed = pages_for(longest)
    if needed > num_pages:
        raise ResourceError(
            f"{longest} tokens need {needed} pages of K/V memory, and there are {num_pages}",
            hint="give the K/V cache more memory, or lower max_tokens or max_context",
        )


def _check_exits(request: Request, known: Collection[str]) -> None:
    """Refuse a policy that the engine does not have, and drafts beside one."""
    policy, drafting = request.exits.policy, request.drafting
    if policy is None:
        return
    if policy not in known:
        hint = f"policies here are {', '.join(known)}" if known else "no exits are loaded: every token runs all layers"
        raise InvalidRequestError(f"there is no exit policy {shown(policy)}", hint=hint, param="exits")
    if not drafting.off and (drafting.drafter is not None or drafting.references):
        what = f"the drafter {shown(drafting.drafter)}" if drafting.drafter is not None else "references to draft from"
        hint = "a request has early exits or drafts: leave out one of them"
        raise InvalidRequestError(f"exits {shown(policy)} beside {what}", hint=hint, param="draft")


def _check_little(request: Request, known: Collection[str]) -> None:
    """Refuse a big-little policy that the engine does not have, and what can't run beside one."""
    policy = request.big_little
    if policy is None:
        return
    if policy not in known:
        hint = f"policies here are {', '.join(sorted(known))}" if known else "no little model is loaded"
        raise InvalidRequestError(f"there is no big-little policy {shown(policy)}", hint=hint, param="big_little")
    beside = {
        f"exits {shown(request.exits.policy)}": request.exits.policy is not None,
        "drafters": request.drafting.drafter is not None and not request.drafting.off,
        f"the verifier {request.drafting.verifier}": request.drafting.verifier != EXACT,
        "a grammar": request.grammar is not None,
    }
    what = next((name for name, given in beside.items() if given), None)
    if what is not None:
        hint = "leave one of the two out"
        raise InvalidRequestError(f"big-little policy {shown(policy)} beside {what}", hint=hint, param="big_little")
