"""Sampling fields of a body -> SamplingParams: the client's values over the checkpoint's, under the client's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.params import check_int, refused
from offramp.serve.schema import ChatBody, CompletionBody, SamplingBody
from offramp.serve.structure import structure_of

COMPLETION_TOKENS = 16
"""Most tokens of a completion that names no number, as OpenAI has it."""

MAX_STOPS = 64
MAX_STOP_CHARACTERS = 4096
"""Of all stop strings together: every character costs work in every choice."""

FRESH_SEED = -1
"""Asks for a fresh seed, as in vLLM; other negative seeds are 64-bit patterns, as OpenAI allows them."""

PLAIN = (
    *("temperature", "top_p", "top_k", "min_p", "n", "min_tokens", "ignore_eos", "stop_token_ids"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "prompt_logprobs"),
)
"""Fields that go into SamplingParams as they are."""


def chat_params(body: ChatBody, defaults: SamplingParams) -> SamplingParams:
    """Of a chat; `max_completion_tokens` counts before its older name `max_tokens`."""
    check_int("max_completion_tokens", body.max_completion_tokens, 1, optional=True)
    tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if body.top_logprobs is not None:
        check_int("top_logprobs", body.top_logprobs, 0, 128)
        if not body.logprobs:
            hint = "set logprobs to true"
            raise InvalidRequestError("top_logprobs needs logprobs", hint=hint, param="top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return _params(body, defaults, max_tokens=tokens, logprobs=logprobs)


def completion_params(body: CompletionBody, defaults: SamplingParams) -> SamplingParams:
    """Of a completion; an echo with logprobs wants those of the prompt as well."""
    tokens = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    params = _params(body, defaults, max_tokens=tokens, logprobs=body.logprobs)
    if not body.echo or body.logprobs is None:
        return params
    asked = [count for count in (body.logprobs, body.prompt_logprobs) if count is not None]
    return replace(params, prompt_logprobs=max(asked))


def _params(
    body: SamplingBody, defaults: SamplingParams, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    given: dict[str, Any] = {name: value for name in PLAIN if (value := getattr(body, name)) is not None}
    if body.seed is not None:
        given["seed"] = _seed(body.seed)
    if body.stop is not None:
        given["stop"] = _stops(body.stop)
    if body.logit_bias:
        given["logit_bias"] = _bias(body.logit_bias)
    given["structured_outputs"] = structure_of(body)
    params = replace(defaults, max_tokens=max_tokens, logprobs=logprobs, **given)
    if body.best_of not in (None, params.n):
        raise refused("best_of", body.best_of, f"as many answers as are returned, n={params.n}")
    return params


def _seed(seed: int) -> int | None:
    if seed == FRESH_SEED:
        return None
    if not -(2**63) <= seed < 2**64:
        raise refused("seed", seed, "a 64-bit integer; -1 is a fresh seed")
    return seed % 2**64


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise refused("stop", value, "a string, or a list of strings")
    if len(stops) > MAX_STOPS or sum(map(len, stops)) > MAX_STOP_CHARACTERS:
        found = f"{len(stops)} strings of {sum(map(len, stops))} characters"
        raise refused("stop", found, f"at most {MAX_STOPS} strings, {MAX_STOP_CHARACTERS} characters in all")
    return tuple(stops)


def _bias(table: Mapping[str, object]) -> dict[int, float]:
    """JSON has strings for keys: each must be a token id as it is usually written."""
    biases: dict[int, float] = {}
    for key, bias in table.items():
        if not isinstance(bias, int | float) or isinstance(bias, bool):
            raise refused(f"logit_bias.{key[:20]}", bias, "a number")
        if not (key.isascii() and key.isdecimal() and len(key) < 12):
            raise refused("logit_bias", key, "token ids as keys, such as 1234")
        biases[int(key)] = bias
    if len(biases) < len(table):
        raise refused("logit_bias", "a token id given twice", "each token id once")
    return biases
