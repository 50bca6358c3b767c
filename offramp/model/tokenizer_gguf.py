"""GGUF metadata -> tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offramp.errors import UnsupportedModelError
from offramp.model.gguf_byte_level import byte_level_tokenizer
from offramp.model.gguf_sentencepiece import sentencepiece_tokenizer
from offramp.model.gguf_tokens import read_tokens
from offramp.model.metadata import Fields
from offramp.model.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tokenizers

PREFIX = "tokenizer.ggml."
KINDS = ("gpt2", "llama")


def read_gguf_tokenizer(metadata: Mapping[str, object], where: str) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """The backend and vocabulary of a GGUF file; errors name the key and `where`."""
    fields = Fields({k.removeprefix(PREFIX): v for k, v in metadata.items() if k.startswith(PREFIX)}, where)
    kind = fields.text("model")
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{where}: tokenizer.ggml.model={kind!r} is not supported",
            hint="byte-level BPE ('gpt2') and SentencePiece ('llama') are; use a model directory with tokenizer.json",
        )
    tokens = read_tokens(fields)
    if kind == "gpt2":
        return byte_level_tokenizer(tokens)
    return sentencepiece_tokenizer(tokens, str(metadata.get("general.architecture")))
