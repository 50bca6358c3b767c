"""Reading training data: one JSON object a line with `prompt` and, for fine-tuning, `reference`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from offramp.errors import InvalidRequestError
from offramp.prompt_lines import prompt_lines

Item = TypeVar("Item")

FORMAT_HINT = 'one JSON object a line, such as {"prompt": "...", "reference": "..."}'


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt and the answer wanted for it."""

    prompt: str
    reference: str


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a file, each prompt once (the first). Raises InvalidRequestError naming the line."""
    pairs: dict[str, Pair] = {}
    for where, fields in _objects(path):
        prompt, reference = _text(fields, "prompt", where), _text(fields, "reference", where)
        pairs.setdefault(prompt, Pair(prompt, reference))
    return _some(list(pairs.values()), path)


def read_prompts(path: Path) -> list[str]:
    """Every prompt of a file once; other fields are passed over. Raises InvalidRequestError naming the line."""
    prompts = dict.fromkeys(_text(fields, "prompt", where) for where, fields in _objects(path))
    return _some(list(prompts), path)


def held_out(prompt: str, share: float, seed: int) -> bool:
    """Whether a prompt is kept for measuring: depends on it and the seed alone, whatever else the file holds."""
    digest = hashlib.sha256(f"{seed}:{prompt}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def split_pairs(pairs: Sequence[Pair], share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Those to train on, and those kept for measuring."""
    kept = [pair for pair in pairs if held_out(pair.prompt, share, seed)]
    trained = [pair for pair in pairs if not held_out(pair.prompt, share, seed)]
    if not kept or not trained:
        raise InvalidRequestError(
            f"{len(pairs)} prompts are too few to keep {share:.0%} of them for measuring", hint="give more data"
        )
    return trained, kept


def _objects(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    for line in prompt_lines(path):
        yield line.where, line.fields


def _text(fields: Mapping[str, object], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequestError(f"{where}: {name!r} holds no text", hint=FORMAT_HINT)
    return value


def _some(items: list[Item], path: Path) -> list[Item]:
    if not items:
        raise InvalidRequestError(f"{path} holds no prompts", hint=FORMAT_HINT)
    return items
