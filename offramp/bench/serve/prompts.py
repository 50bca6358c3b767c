"""What is sent: random words, or the lines of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offramp.errors import InvalidRequestError

Endpoint = Literal["chat", "completions"]

Message = Mapping[str, object]

LONGEST_LINE = 16 * 2**20
"""Characters of a line of a file."""

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
    prompts: list[Prompt] = []
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            while (count is None or len(prompts) < count) and (line := file.readline(LONGEST_LINE + 1)):
                number += 1
                if line.strip():
                    prompts.append(Prompt(_content_of(line, f"{path}, line {number}", endpoint), output_len))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"can't read {path}: {error}", hint="name a JSONL file in UTF-8") from error
    if len(prompts) < (count or 1):
        hint = "ask for fewer with --num-prompts; repeated ones would be answered from the prefix cache"
        raise InvalidRequestError(f"{path} has {len(prompts)} prompts, not {count or 'any'}", hint=hint)
    return prompts


def _content_of(line: str, where: str, endpoint: Endpoint) -> str | Sequence[Message]:
    hint = 'a line looks like {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
    if len(line) > LONGEST_LINE:
        raise InvalidRequestError(f"{where} is longer than {LONGEST_LINE} characters", hint=hint)
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{where} is not JSON: {error}", hint=hint) from error
    if not isinstance(entry, dict):
        raise InvalidRequestError(f"{where} is not an object", hint=hint)
    prompt, messages = entry.get("prompt"), entry.get("messages")
    if isinstance(prompt, str) and prompt and messages is None:
        return _as_content(prompt, endpoint)
    if isinstance(messages, list) and messages and prompt is None:
        if endpoint == "completions":
            raise InvalidRequestError(f"{where} has messages", hint="send them with --endpoint chat")
        return messages
    raise InvalidRequestError(f"{where} has neither a text as prompt nor a list of messages alone", hint=hint)


def _as_content(text: str, endpoint: Endpoint) -> str | Sequence[Message]:
    return [{"role": "user", "content": text}] if endpoint == "chat" else text
