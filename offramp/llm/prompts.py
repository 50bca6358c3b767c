"""What callers may pass as prompts and parameters, made uniform and checked."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.model.tokenizer import Tokenizer

Prompt = str | Sequence[int]
"""Text, in which special tokens are parsed, or token ids."""

HINT = "a prompt is a string or a list of token ids"


def as_prompts(prompts: Prompt | Sequence[str] | Sequence[Sequence[int]]) -> list[Prompt]:
    """One prompt or several as a list: a non-empty list of ids is one prompt, an empty list is none."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise InvalidRequestError(f"prompts can't be {type(prompts).__name__}", hint=HINT, param="prompt")
    if prompts and not isinstance(prompts[0], (str, Sequence)):
        return [as_ids(prompts)]
    return [prompt if isinstance(prompt, str) else as_ids(prompt) for prompt in prompts]


def as_ids(values: object) -> list[int]:
    """Token ids as plain ints; anything else is refused."""
    if not isinstance(values, Sequence):
        raise InvalidRequestError(f"a prompt can't be {type(values).__name__}", hint=HINT, param="prompt")
    try:
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return [operator.index(value) for value in values]
    except TypeError as error:
        raise InvalidRequestError(
            "the prompt mixes token ids with something else", hint=HINT, param="prompt"
        ) from error


def as_params(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """One set of parameters a prompt; a single one, or none, serves them all."""
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InvalidRequestError(
            f"{len(params)} sets of sampling parameters for {count} prompts",
            hint="give one for all prompts, or one for each",
            param="params",
        )
    return list(params)


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer, bos_token_id: int | None) -> list[int]:
    """The prompt's token ids; an empty one becomes BOS if the model has it."""
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else as_ids(prompt)
    if ids:
        return ids
    if bos_token_id is None:
        raise InvalidRequestError(
            "the prompt is empty and the model has no BOS token to start from", hint="give some text", param="prompt"
        )
    return [bos_token_id]


def check_params(params: SamplingParams, vocab_size: int) -> None:
    """What only the model can tell about sampling parameters."""
    outside = [token for token in params.stop_token_ids if token >= vocab_size]
    if outside:
        hint = f"token ids of this model are 0..{vocab_size - 1}"
        raise InvalidRequestError(f"stop_token_ids names token {outside[0]}", hint=hint, param="stop_token_ids")
