"""The prompts of a calibration: lines of a file as token ids, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.exits.pack import ExitPack
from offramp.llm.loading import LoadedModel
from offramp.llm.prompts import encode_prompt
from offramp.prompt_lines import PromptLine, file_hash, prompt_lines

NUM_SEEDS = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationPrompt:
    """What is asked, and the answers that a score takes for right."""

    token_ids: Ids
    seed: int  # of its draws, the same whatever runs
    references: tuple[str, ...]
    where: str  # file and line, for errors


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What a file came to."""

    prompts: list[CalibrationPrompt]
    too_long: list[str]  # lines that leave no room for an answer: a server refuses such requests


def read_prompts(
    path: Path, loaded: LoadedModel, *, raw: bool = False, limit: int | None = None, scored: bool = False, seed: int = 0
) -> PromptFile:
    """The first `limit` lines through the chat template, or with `raw` as they are; `scored`: with references.

    Raises InvalidRequestError naming the line, or the file if none is usable.
    """
    if not raw and not loaded.template.available:
        raise InvalidRequestError(
            f"{loaded.name} has no chat template", hint="add --raw to take prompts as they are", param="raw"
        )
    prompts: list[CalibrationPrompt] = []
    too_long: list[str] = []
    for number, line in enumerate(islice(prompt_lines(path), limit)):
        ids = _encode(line, loaded, raw)
        if len(ids) >= loaded.max_context:
            too_long.append(line.where)
            continue
        references = _references(line) if scored else ()
        prompts.append(CalibrationPrompt(ids, (seed + number) % NUM_SEEDS, references, line.where))
    if not prompts:
        why = f": all {len(too_long)} fill the context of {loaded.max_context} tokens" if too_long else ""
        raise InvalidRequestError(
            f"{path} has no usable prompts{why}", hint="calibrate on prompts as your users ask them", param="prompts"
        )
    return PromptFile(prompts, too_long)


def check_unseen(path: Path, pack: ExitPack) -> None:
    """Refuse the file that a pack was trained on: there its exits are better than on what is asked later."""
    trained = pack.config.provenance.get("prompts")
    if isinstance(trained, Mapping) and trained.get("sha256") == file_hash(path):
        raise InvalidRequestError(
            f"{path} is what the exit pack was trained on",
            hint="calibrate on other prompts from the same source: what was learned by heart promises nothing",
            param="prompts",
        )


def _encode(line: PromptLine, loaded: LoadedModel, raw: bool) -> Ids:
    content = line.content
    try:
        if not raw:
            messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
            ids = loaded.template.encode_chat(loaded.tokenizer, messages)
        elif isinstance(content, str):
            ids = encode_prompt(content, loaded.tokenizer, loaded.bos_token_id)
        else:
            raise InvalidRequestError("messages need the chat template", hint="leave out --raw, or give prompts")
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{line.where}: {error.message}", hint=error.hint, param="prompts") from error
    return np.array(ids, dtype=np.int32)


def _references(line: PromptLine) -> tuple[str, ...]:
    """One text, or a list of texts of which any will do."""
    value = line.fields.get("reference")
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError(
            f"{line.where} has no reference",
            hint='a score takes lines such as {"prompt": "...", "reference": "..."}',
            param="prompts",
        )
    return tuple(texts)
