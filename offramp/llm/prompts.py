"""What callers may pass as prompts and parameters, made uniform and checked."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from offramp.core import RequestOptions, SamplingParams
from offramp.errors import InvalidRequestError
from offramp.model.template_values import Message
from offramp.model.tokenizer import Tokenizer
from offramp.params import refused

Prompt = str | Sequence[int]
"""Text, in which special tokens are parsed, or token ids."""

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of a chat as OpenAI names them -> the template's."""

TOOL_ROLE = "tool"
"""Of a tool's result; where callers can say which tools there are."""

HINT = "a prompt is a string or a list of token ids"


def as_prompts(prompts: Prompt | Sequence[str] | Sequence[Sequence[int]]) -> list[Prompt]:
    """One prompt or several as a list: a non-empty list of ids is one prompt, an empty list is none."""
    if isinstance(prompts, str):
        return [prompts]
    if not _is_list(prompts):
        raise _foreign("prompts", prompts)
    if prompts and not isinstance(prompts[0], (str, Sequence)):
        return [as_ids(prompts)]
    return [prompt if isinstance(prompt, str) else as_ids(prompt) for prompt in prompts]


def as_ids(values: object) -> list[int]:
    """Token ids as plain ints; anything else is refused."""
    if not _is_list(values):
        raise _foreign("a prompt", values)
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
    if not _is_list(params):
        return [as_param(params)] * count
    if len(params) != count:
        raise InvalidRequestError(
            f"{len(params)} sets of sampling parameters for {count} prompts",
            hint="give one for all prompts, or one for each",
            param="params",
        )
    return [as_param(each) for each in params]


def as_param(params: object) -> SamplingParams:
    """One set of parameters; None is the default one."""
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        raise refused("params", params, "SamplingParams, for several prompts also a list of them")
    return params


def as_options(options: object) -> RequestOptions:
    """A request's own say; None is none."""
    if options is None:
        return RequestOptions()
    if not isinstance(options, RequestOptions):
        raise refused("options", options, "RequestOptions, which serve all prompts")
    return options


def as_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """A conversation with the template's roles; unknown ones are refused. The template checks everything else."""
    if not isinstance(messages, list | tuple):
        return messages
    return [_with_known_role(message, f"messages[{place}].role") for place, message in enumerate(messages)]


def _with_known_role(message: Message, where: str) -> Message:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str) or not role or role == TOOL_ROLE:
        return message
    if role not in ROLES:
        raise refused(where, role, f"one of {', '.join((*ROLES, TOOL_ROLE))}")
    return message if ROLES[role] == role else {**message, "role": ROLES[role]}


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


def _is_list(values: object) -> TypeGuard[Sequence[Any]]:
    """A sequence of items; text and bytes are no lists of characters or numbers."""
    return isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray, memoryview))


def _foreign(what: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(f"{what} can't be {type(value).__name__}", hint=HINT, param="prompt")
