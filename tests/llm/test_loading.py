"""What is refused when the files of a model don't belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offramp.errors import CorruptModelError
from offramp.llm.loading import read_tokenizer
from offramp.model.checkpoint import open_checkpoint
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint
from offramp.testing.models import chat_tokenizer, tokenizer_metadata
from offramp.testing.toy import toy_config, toy_source

TOKENS = chat_tokenizer().vocab_size


def write_model(path: Path, *, gguf: bool, rows: int) -> Path:
    config = toy_config(vocab_size=rows)
    weights = role_values(toy_source(config, seed=3))
    if gguf:
        return write_gguf(path / "toy.gguf", config, weights, metadata=tokenizer_metadata())
    content = json.loads(chat_tokenizer()._backend.to_str())
    return write_safetensors_checkpoint(path, config, weights, json_files={"tokenizer.json": content})


@pytest.mark.parametrize("gguf", [True, False])
def test_every_token_needs_a_row_of_the_embedding(tmp_path: Path, gguf: bool) -> None:
    checkpoint = open_checkpoint(write_model(tmp_path, gguf=gguf, rows=TOKENS - 1))
    with pytest.raises(CorruptModelError, match=f"{TOKENS} tokens, but {TOKENS - 1} embedding rows"):
        read_tokenizer(checkpoint)


@pytest.mark.parametrize("gguf", [True, False])
@pytest.mark.parametrize("padding", [0, 5])
def test_an_embedding_may_have_more_rows(tmp_path: Path, gguf: bool, padding: int) -> None:
    checkpoint = open_checkpoint(write_model(tmp_path, gguf=gguf, rows=TOKENS + padding))
    assert read_tokenizer(checkpoint).vocab_size == TOKENS
