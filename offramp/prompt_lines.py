"""Prompts from a JSONL file: each line an object with `prompt`, a text, or `messages`, a conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import InvalidRequestError

Message = Mapping[str, object]

LONGEST_LINE = 16 * 2**20
"""Characters of a line of a file."""
HINT = 'a line looks like {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One line."""

    content: str | Sequence[Message]  # not empty
    fields: Mapping[str, object]  # the whole object
    where: str  # file and line, for errors


def prompt_lines(path: Path, *, hint: str = HINT) -> Iterator[PromptLine]:
    """The lines that are not blank, read one by one. Raises InvalidRequestError naming the line, or the file.

    `hint` says what a line looks like.
    """
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}", hint)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"can't read {path}: {error}", hint="name a JSONL file in UTF-8") from error


def file_hash(path: Path) -> str:
    """sha256 of a file, in hex. Raises InvalidRequestError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error}", hint="name a JSONL file in UTF-8") from error


def _parsed(line: str, where: str, hint: str) -> PromptLine:
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
        return PromptLine(prompt, entry, where)
    if isinstance(messages, list) and messages and prompt is None:
        return PromptLine(messages, entry, where)
    raise InvalidRequestError(f"{where} has neither a text as prompt nor a list of messages alone", hint=hint)
