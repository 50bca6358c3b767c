"""Reading training data: one JSON object a line with `prompt` and, for fine-tuning, `reference`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from offramp.errors import InvalidRequestError
from offramp.prompt_lines import PromptLine, prompt_lines

Item = TypeVar("Item")

PAIR_HINT = 'one JSON object a line, such as {"prompt": "...", "reference": "..."}'
PROMPT_HINT = 'one JSON object a line, such as {"prompt": "..."}'


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt and the answer wanted for it."""

    prompt: str
    reference: str


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a file, each prompt once (the first). Raises InvalidRequestError naming the line."""
    pairs: dict[str, Pair] = {}
    for line in prompt_lines(path, hint=PAIR_HINT):
        prompt, reference = _text(line, "prompt", PAIR_HINT), _text(line, "reference", PAIR_HINT)
        pairs.setdefault(prompt, Pair(prompt, reference))
    return _some(list(pairs.values()), path, PAIR_HINT)


def read_prompts(path: Path) -> list[str]:
    """Every prompt of a file once; other fields are passed over. Raises InvalidRequestError naming the line."""
    lines = prompt_lines(path, hint=PROMPT_HINT)
    prompts = dict.fromkeys(_text(line, "prompt", PROMPT_HINT) for line in lines)
    return _some(list(prompts), path, PROMPT_HINT)


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


def _text(line: PromptLine, name: str, hint: str) -> str:
    value = line.fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequestError(f"{line.where}: {name!r} holds no text", hint=hint)
    return value


def _some(items: list[Item], path: Path, hint: str) -> list[Item]:
    if not items:
        raise InvalidRequestError(f"{path} holds no prompts", hint=hint)
    return items
