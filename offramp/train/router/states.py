"""Embeddings of all prompts, on disk as they come, so that none is made twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.embed import embed, num_features, pages_needed
from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel
from offramp.llm.prompts import encode_prompt
from offramp.prompt_lines import PromptLine
from offramp.train.exits.work import open_work

STATES = "embeddings.npy"
KEEP_EVERY = 32
"""Prompts between two notes of how far it has come."""

Embedded = NDArray[np.float32]  # [prompts, depths, features]


def encode(loaded: LoadedModel, lines: Sequence[PromptLine]) -> list[Ids]:
    """Prompts as a server reads them: through the chat template where the model has one.

    Raises InvalidRequestError naming the line.
    """
    return [_encode(loaded, line) for line in lines]


def embed_all(
    loaded: LoadedModel, prompts: Sequence[Ids], depths: Sequence[int], folder: Path, tell: Callable[[int], object]
) -> Embedded:
    """Of every prompt, going on in `folder` where an interruption left it. No engine may run.

    `tell(prompts done)` is called now and then.
    """
    identity = {"model": loaded.source_hash, "formats": dict(loaded.formats), "kv": loaded.kv, "depths": list(depths)}
    work = open_work(folder, {**identity, "prompts": _digest(prompts)})
    shape = (len(prompts), len(depths), num_features(loaded.config.hidden_size))
    path = folder / STATES
    if "embedded" in work.state:
        states = np.lib.format.open_memmap(path, mode="r+")
    else:
        states = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        work.note(embedded=0)
    assert states.shape == shape, (states.shape, shape)
    pages = np.arange(max(pages_needed(loaded.config, len(ids)) for ids in prompts), dtype=np.int32)
    for number in range(int(work.state["embedded"]), len(prompts)):
        states[number] = embed(loaded.executor, prompts[number], depths, pages)
        if (number + 1) % KEEP_EVERY == 0 or number + 1 == len(prompts):
            states.flush()
            work.note(embedded=number + 1)
            tell(number + 1)
    return states


def _encode(loaded: LoadedModel, line: PromptLine) -> Ids:
    content = line.content
    try:
        if loaded.template.available:
            messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
            ids = loaded.template.encode_chat(loaded.tokenizer, messages)
        elif isinstance(content, str):
            ids = encode_prompt(content, loaded.tokenizer, loaded.bos_token_id)
        else:
            raise InvalidRequestError(f"{loaded.name} has no chat template", hint="give prompts, not messages")
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{line.where}: {error.message}", hint=error.hint, param="data") from error
    return np.array(ids, dtype=np.int32)


def _digest(prompts: Sequence[Ids]) -> str:
    digest = hashlib.sha256()
    for ids in prompts:
        digest.update(len(ids).to_bytes(8, "little") + ids.tobytes())
    return digest.hexdigest()
