"""Byte-level BPE from the vocabulary and merges that a GGUF file carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offramp.errors import CorruptModelError
from offramp.model.gguf_tokens import LITERAL, GgufTokens, find_whole, gguf_vocabulary, strings
from offramp.model.metadata import CORRUPT_HINT, Fields
from offramp.model.pretokenizers import PreTokenizerRule, build, find_rule
from offramp.model.vocabulary import Vocabulary, byte_alphabet, byte_level_bytes

if TYPE_CHECKING:
    import tokenizers


def byte_level_tokenizer(tokens: GgufTokens) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """The backend and vocabulary of a file of model `gpt2`."""
    fields = tokens.fields
    rule = find_rule(fields.text("pre") if fields.has("pre") else None)
    alphabet = byte_alphabet()
    token_bytes = (
        text.encode("utf-8") if kind in LITERAL else byte_level_bytes(text, alphabet)
        for text, kind in zip(tokens.texts, tokens.types, strict=True)
    )
    return _backend(tokens, rule), gguf_vocabulary(tokens, token_bytes, add_bos=rule.add_bos)


def _backend(tokens: GgufTokens, rule: PreTokenizerRule) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    where, ids, merges = tokens.fields.where, tokens.ids(), _merges(tokens.fields)
    try:
        model = models.BPE(vocab=ids, merges=merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the package raises plain Exception for a merge outside the vocabulary
        raise CorruptModelError(f"{where}: the merges don't fit the vocabulary: {error}", hint=CORRUPT_HINT) from error
    backend = Tokenizer(model)
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = build(rule)
    backend.decoder = decoders.ByteLevel()
    find_whole(backend, tokens)
    return backend


def _merges(fields: Fields) -> list[tuple[str, str]]:
    pairs = []
    for merge in strings(fields, "merges"):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise CorruptModelError(f"{fields.where}: merge {merge!r} is not two tokens", hint=CORRUPT_HINT)
        pairs.append((left, right))
    return pairs
