"""SentencePiece vocabularies in GGUF files: pieces with scores, spaces written as a mark, bytes as a last resort.

SentencePiece joins the neighbours whose joint piece has the best score, wherever they stand, until none are left to
join. That is BPE whose merges are all the ways to cut a piece in two, the best piece's first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.gguf_tokens import BOS_KEY, LITERAL, GgufTokens, TokenType, find_whole, gguf_vocabulary
from offramp.model.metadata import CORRUPT_HINT
from offramp.model.vocabulary import SPACE_MARK, Vocabulary, byte_piece, piece_bytes

if TYPE_CHECKING:
    import tokenizers

MAX_PIECE = 1024  # characters; the longest of real vocabularies are runs of spaces or dashes
ORDINARY = (TokenType.UNDEFINED, TokenType.NORMAL)
USUAL = {BOS_KEY: "<s>", "eos_token_id": "</s>"}
"""What files name no ids for."""
PHI3_KEEPS_SPACE = ("<unk>", "<s>", "<|endoftext|>")
"""The whole tokens of Phi-3 that do not swallow the white space behind them, as all others do; no file says so."""


def sentencepiece_tokenizer(tokens: GgufTokens, architecture: str) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """The backend and vocabulary of a file of model `llama`. A space is put before the text, and behind each literal
    token before what follows, unless the file says otherwise.
    """
    if tokens.fields.flag("remove_extra_whitespaces", False):
        raise UnsupportedModelError(
            f"{tokens.fields.where}: tokenizer.ggml.remove_extra_whitespaces is true",
            hint="vocabularies that change the text's spaces are not supported",
        )
    tokens = replace(tokens, texts=list(_plain_texts(tokens)))
    prefix = tokens.fields.flag("add_space_prefix", True)
    vocabulary = gguf_vocabulary(tokens, _token_bytes(tokens), add_bos=True, strip_start=prefix, usual=USUAL)
    return _backend(tokens, prefix, architecture), vocabulary


def _plain_texts(tokens: GgufTokens) -> Iterator[str]:
    """User-defined pieces are looked for in plain text; older files write their spaces as in all other pieces."""
    for text, kind in zip(tokens.texts, tokens.types, strict=True):
        yield text.replace(SPACE_MARK, " ") if kind is TokenType.USER_DEFINED else text


def _token_bytes(tokens: GgufTokens) -> Iterator[bytes]:
    for text, kind in zip(tokens.texts, tokens.types, strict=True):
        if kind is TokenType.BYTE and byte_piece(text) is None:
            message = f"{tokens.fields.where}: token {text!r} is of type byte"
            raise CorruptModelError(message, hint="such tokens are written <0x00> to <0xFF>")
        yield text.encode("utf-8") if kind in LITERAL else piece_bytes(text)


def _backend(tokens: GgufTokens, prefix: bool, architecture: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    ids = tokens.ids()
    _check_bytes(ids, tokens.fields.where)
    backend = Tokenizer(models.BPE(vocab=ids, merges=_merges(tokens), byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE_MARK)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    find_whole(backend, tokens, _space_eaters(tokens) if architecture == "phi3" else frozenset())
    return backend


def _space_eaters(tokens: GgufTokens) -> frozenset[int]:
    return frozenset(i for i in tokens.of_type(*LITERAL) if tokens.texts[i] not in PHI3_KEEPS_SPACE)


def _merges(tokens: GgufTokens) -> list[tuple[str, str]]:
    """All ways to make a piece of two others, best score first. Only ordinary pieces are made or joined."""
    scores = _scores(tokens)
    ordinary = [i for i in tokens.of_type(*ORDINARY) if byte_piece(tokens.texts[i]) is None]
    ordinary.sort(key=lambda i: -scores[i])
    pieces = [tokens.texts[i] for i in ordinary]
    longest = max(map(len, pieces), default=0)
    if longest > MAX_PIECE:  # all its cuts are tried
        message = f"{tokens.fields.where}: a token is {longest} characters long"
        raise CorruptModelError(message, hint=f"{MAX_PIECE} are possible; {CORRUPT_HINT}")
    known = frozenset(pieces)
    return [
        (left, right)
        for piece in pieces
        for cut in range(1, len(piece))
        if (left := piece[:cut]) in known and (right := piece[cut:]) in known
    ]


def _scores(tokens: GgufTokens) -> list[float]:
    fields = tokens.fields
    scores = fields.values.get("scores")
    if not isinstance(scores, list) or any(type(score) is not float or math.isnan(score) for score in scores):
        raise fields.error("scores", "one score, a number, for each token")
    if len(scores) != len(tokens.texts):
        message = f"{fields.where}: {len(tokens.texts)} tokens but {len(scores)} scores"
        raise CorruptModelError(message, hint=CORRUPT_HINT)
    return scores


def _check_bytes(ids: Mapping[str, int], where: str) -> None:
    """Refuse a vocabulary that can't spell every text."""
    missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in ids and not (byte < 128 and chr(byte) in ids)]
    if missing:
        raise UnsupportedModelError(
            f"{where}: the vocabulary has no token for {len(missing)} bytes, the first of them {missing[0]:#04x}",
            hint="SentencePiece vocabularies with byte fallback are supported",
        )
