"""What is refused when the files of a model don't belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offramp.errors import CorruptModelError
from offramp.llm.loading import load_model, read_tokenizer
from offramp.model.checkpoint import open_checkpoint
from offramp.model.config import LongRopeScaling, RopeConfig
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


def test_the_context_served_chooses_the_factors_of_longrope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    scaling = LongRopeScaling(
        short_divisors=(1.0,) * 8, long_divisors=(4.0,) * 8, original_context=64, attention_factor=1.5, context=256
    )
    config = toy_config(
        family="phi3", vocab_size=TOKENS, max_context=256, rope=RopeConfig(rotary_dim=16, scaling=scaling)
    )
    path = write_gguf(
        tmp_path / "phi.gguf", config, role_values(toy_source(config, seed=3)), metadata=tokenizer_metadata()
    )
    for max_context, divisors in ((None, (4.0,) * 8), (65, (4.0,) * 8), (64, (1.0,) * 8)):
        loaded = load_model(path, max_context=max_context, threads=1)
        assert loaded.config.for_context(256) == open_checkpoint(path).config
        rope = loaded.config.rope.scaling
        assert isinstance(rope, LongRopeScaling)
        assert rope.divisors == divisors
