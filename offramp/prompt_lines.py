"""Prompts from a JSONL file: each line an object with `prompt`, a text, or `messages`, a conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import InvalidRequestError
from offramp.json_depth import MOST_LEVELS, is_too_deep

Message = Mapping[str, object]

LONGEST_LINE = 16 * 2**20
"""Bytes of a line of a file."""
FILE_HINT = "name a JSONL file in UTF-8"
HINT = 'a line looks like {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
NO_CONTENT = "has neither a text as prompt nor a list of messages alone"


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One line."""

    content: str | Sequence[Message]  # not empty
    fields: Mapping[str, object]  # the whole object
    where: str  # file and line, for errors


@dataclass(frozen=True, slots=True)
class Entry:
    """One line, whatever its object holds."""

    fields: Mapping[str, object]
    number: int  # from 1
    where: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """One line that holds no object."""

    reason: str  # follows `where` in a sentence
    where: str
    hint: str | None = None  # where what a line looks like would not help


def prompt_lines(path: Path, *, hint: str = HINT) -> Iterator[PromptLine]:
    """The lines that are not blank, read one by one. Raises InvalidRequestError naming the line, or the file.

    `hint` says what a line looks like.
    """
    for line in entries(path):
        if isinstance(line, BadLine):
            raise InvalidRequestError(f"{line.where} {line.reason}", hint=line.hint or hint)
        content = content_of(line.fields)
        if content is None:
            raise InvalidRequestError(f"{line.where} {NO_CONTENT}", hint=hint)
        yield PromptLine(content, line.fields, line.where)


def entries(path: Path) -> Iterator[Entry | BadLine]:
    """The lines that are not blank, read one by one, bad ones too. Raises InvalidRequestError naming the file."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if line.strip() or len(line) > LONGEST_LINE:
                    yield _parsed(line, number, f"{path}, line {number}")
                while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE + 1)
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error}", hint=FILE_HINT) from error


def content_of(fields: Mapping[str, object]) -> str | Sequence[Message] | None:
    """The text or the conversation of an object; None unless it has one of them."""
    prompt, messages = fields.get("prompt"), fields.get("messages")
    if isinstance(prompt, str) and prompt and messages is None:
        return prompt
    if isinstance(messages, list) and messages and prompt is None:
        return messages
    return None


def file_hash(path: Path) -> str:
    """sha256 of a file, in hex. Raises InvalidRequestError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error}", hint=FILE_HINT) from error


def _parsed(line: bytes, number: int, where: str) -> Entry | BadLine:
    if len(line) > LONGEST_LINE:
        return BadLine(f"is longer than {LONGEST_LINE} bytes", where)
    try:
        fields = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))  # editors put a mark in front
    except UnicodeDecodeError as error:
        return BadLine(f"is not UTF-8: {error}", where, FILE_HINT)
    except (ValueError, RecursionError) as error:
        return BadLine(f"is not JSON: {error}", where)
    if is_too_deep(fields):
        return BadLine(f"is nested deeper than {MOST_LEVELS} levels", where)
    return Entry(fields, number, where) if isinstance(fields, dict) else BadLine("is not an object", where)
