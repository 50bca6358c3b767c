"""What is sent: random words, or the lines of a file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from offramp.errors import InvalidRequestError
from offramp.prompt_lines import Message, PromptLine, prompt_lines

Endpoint = Literal["chat", "completions"]

_WORDS = """
the of and to in is that for it was on are as with his they at be this from have or by one had not
but what all were when we there can an your which their said if do will each about how up out them
then she many some so these would other into has more her two like him see time could no make than
first been its who now people my made over did down only way find use may water long little very
after words called just where most know
"""
WORDS = _WORDS.split()
"""Short words, each of which is one token in nearly every vocabulary."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text for completions or messages for chat, and how many tokens the answer may have."""

    content: str | Sequence[Message]
    output_len: int


def random_prompts(endpoint: Endpoint, *, count: int, input_len: int, output_len: int, seed: int) -> list[Prompt]:
    """Prompts of `input_len` random words, all different in their first few, so that no cached prefix helps."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=input_len)) for _ in range(count)]
    return [Prompt(_as_content(text, endpoint), output_len) for text in texts]


def read_prompts(path: Path, endpoint: Endpoint, *, count: int | None, output_len: int) -> list[Prompt]:
    """The first `count` lines of a JSONL file (None: all), each an object with `prompt` or `messages`."""
    lines = islice(prompt_lines(path), count)
    prompts = [Prompt(_content_of(line, endpoint), output_len) for line in lines]
    if len(prompts) < (count or 1):
        hint = "ask for fewer with --num-prompts; repeated ones would be answered from the prefix cache"
        raise InvalidRequestError(f"{path} has {len(prompts)} prompts, not {count or 'any'}", hint=hint)
    return prompts


def _content_of(line: PromptLine, endpoint: Endpoint) -> str | Sequence[Message]:
    if isinstance(line.content, str):
        return _as_content(line.content, endpoint)
    if endpoint == "completions":
        raise InvalidRequestError(f"{line.where} has messages", hint="send them with --endpoint chat")
    return line.content


def _as_content(text: str, endpoint: Endpoint) -> str | Sequence[Message]:
    return [{"role": "user", "content": text}] if endpoint == "chat" else text
