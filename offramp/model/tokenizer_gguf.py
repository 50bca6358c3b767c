"""GGUF metadata -> tokenizer: byte-level BPE from the vocabulary and merges that the file carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.metadata import CORRUPT_HINT, Fields
from offramp.model.pretokenizers import PreTokenizerRule, build, find_rule
from offramp.model.vocabulary import Vocabulary, byte_alphabet, byte_level_bytes

if TYPE_CHECKING:
    import tokenizers

PREFIX = "tokenizer.ggml."
CONTROL = 3
USER_DEFINED = 4
LAST_TYPE = 6
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Ids that end an answer; the first is the one templates call eos_token."""


def read_gguf_tokenizer(metadata: Mapping[str, object], where: str) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """The backend and vocabulary of a GGUF file; errors name the key and `where`."""
    fields = Fields({k.removeprefix(PREFIX): v for k, v in metadata.items() if k.startswith(PREFIX)}, where)
    kind = fields.text("model")
    if kind != "gpt2":
        raise UnsupportedModelError(
            f"{where}: tokenizer.ggml.model={kind!r} is not supported",
            hint="only byte-level BPE vocabularies ('gpt2') are; use a model directory with tokenizer.json",
        )
    rule = find_rule(fields.text("pre") if fields.has("pre") else None)
    tokens = _strings(fields, "tokens")
    types = _token_types(fields, len(tokens))
    backend = _backend(tokens, types, _merges(fields), rule, where)
    return backend, _vocabulary(fields, tokens, types, rule)


def _strings(fields: Fields, name: str) -> list[str]:
    value = fields.values.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise fields.error(name, "a list of texts")
    return list(value)


def _token_types(fields: Fields, num_tokens: int) -> list[int]:
    types = fields.values.get("token_type")
    if not isinstance(types, list) or any(type(item) is not int or not 0 <= item <= LAST_TYPE for item in types):
        raise fields.error("token_type", f"one type, an integer in [0, {LAST_TYPE}], for each token")
    if len(types) != num_tokens:
        raise CorruptModelError(f"{fields.where}: {num_tokens} tokens but {len(types)} token types", hint=CORRUPT_HINT)
    return types


def _merges(fields: Fields) -> list[tuple[str, str]]:
    pairs = []
    for merge in _strings(fields, "merges"):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise CorruptModelError(f"{fields.where}: merge {merge!r} is not two tokens", hint=CORRUPT_HINT)
        pairs.append((left, right))
    return pairs


def _backend(
    tokens: list[str], types: list[int], merges: list[tuple[str, str]], rule: PreTokenizerRule, where: str
) -> tokenizers.Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        repeated = next(token for i, token in enumerate(tokens) if ids[token] != i)
        raise CorruptModelError(f"{where}: token {repeated!r} appears twice in the vocabulary", hint=CORRUPT_HINT)
    try:
        model = models.BPE(vocab=ids, merges=merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the package raises plain Exception for a merge outside the vocabulary
        raise CorruptModelError(f"{where}: the merges don't fit the vocabulary: {error}", hint=CORRUPT_HINT) from error
    backend = Tokenizer(model)
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = build(rule)
    backend.decoder = decoders.ByteLevel()
    added = [(token, kind) for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in added if kind == CONTROL])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t, kind in added if kind == USER_DEFINED])
    return backend


def _vocabulary(fields: Fields, tokens: list[str], types: list[int], rule: PreTokenizerRule) -> Vocabulary:
    alphabet = byte_alphabet()
    literal = (CONTROL, USER_DEFINED)
    token_bytes = tuple(
        token.encode("utf-8") if kind in literal else byte_level_bytes(token, alphabet)
        for token, kind in zip(tokens, types, strict=True)
    )
    bos = _id(fields, "bos_token_id", len(tokens))
    ends = [_id(fields, key, len(tokens)) for key in END_KEYS]
    if fields.flag("add_eos_token", False):
        raise UnsupportedModelError(
            f"{fields.where}: tokenizer.ggml.add_eos_token is true",
            hint="only models that continue a prompt can be run",
        )
    return Vocabulary(
        token_bytes=token_bytes,
        special_ids=frozenset(i for i, kind in enumerate(types) if kind == CONTROL),
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        add_bos=bos is not None and fields.flag("add_bos_token", rule.add_bos),
    )


def _id(fields: Fields, name: str, num_tokens: int) -> int | None:
    return fields.integer(name, low=0, high=num_tokens - 1) if fields.has(name) else None
