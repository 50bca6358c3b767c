"""The tokens of a GGUF file, checked: their texts and types, which are found in text whole, which end an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from offramp.errors import CorruptModelError, UnsupportedModelError
from offramp.model.metadata import CORRUPT_HINT, Fields
from offramp.model.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tokenizers


class TokenType(IntEnum):
    """What a GGUF file says of each token; most are NORMAL."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (TokenType.UNKNOWN, TokenType.CONTROL)
LITERAL = (*SPECIAL, TokenType.USER_DEFINED)
"""Types whose texts stand for themselves, and are found in a prompt before anything else."""

BOS_KEY = "bos_token_id"
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Ids that end an answer; the first is the one templates call eos_token."""
OTHER_KEYS = {
    "unknown_token_id": "unk_token",
    "padding_token_id": "pad_token",
    "seperator_token_id": "sep_token",  # so the format spells it
    "cls_token_id": "cls_token",
    "mask_token_id": "mask_token",
}
"""Ids that only templates ask for, and what these call them."""
END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>"),
    *("<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001 - DeepSeek's
)
"""Tokens that end a turn or a text in every model that has them. Files often name one and not the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTokens:
    """Texts and types by id. `fields` are those below `tokenizer.ggml.`, for the rest."""

    fields: Fields
    texts: Sequence[str]
    types: Sequence[TokenType]

    def of_type(self, *types: TokenType) -> list[int]:
        return [i for i, kind in enumerate(self.types) if kind in types]

    def ids(self) -> dict[str, int]:
        """Text -> id. Raises CorruptModelError for a text that two tokens share."""
        ids = {text: i for i, text in enumerate(self.texts)}
        if len(ids) != len(self.texts):
            repeated = next(text for i, text in enumerate(self.texts) if ids[text] != i)
            message = f"{self.fields.where}: token {repeated!r} appears twice in the vocabulary"
            raise CorruptModelError(message, hint=CORRUPT_HINT)
        return ids

    def named_id(self, key: str) -> int | None:
        """The id that the file names, if it does."""
        return self.fields.integer(key, low=0, high=len(self.texts) - 1) if self.fields.has(key) else None


def read_tokens(fields: Fields) -> GgufTokens:
    """The file's tokens. Raises CorruptModelError for lists that are not what they should be."""
    texts, types = strings(fields, "tokens"), fields.values.get("token_type")
    last = max(TokenType)
    if not isinstance(types, list) or any(type(item) is not int or not 0 <= item <= last for item in types):
        raise fields.error("token_type", f"one type, an integer in [0, {last}], for each token")
    if len(types) != len(texts):
        message = f"{fields.where}: {len(texts)} tokens but {len(types)} token types"
        raise CorruptModelError(message, hint=CORRUPT_HINT)
    return GgufTokens(fields=fields, texts=texts, types=list(map(list(TokenType).__getitem__, types)))


def strings(fields: Fields, name: str) -> list[str]:
    value = fields.values.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise fields.error(name, "a list of texts")
    return list(value)


def find_whole(backend: tokenizers.Tokenizer, tokens: GgufTokens, eating_space: frozenset[int] = frozenset()) -> None:
    """Have `backend` find literal tokens in text whole; those in `eating_space` with the white space behind them."""
    from tokenizers import AddedToken

    def added(*types: TokenType) -> list[AddedToken]:
        special = types == SPECIAL
        return [
            AddedToken(tokens.texts[i], special=special, normalized=False, rstrip=i in eating_space)
            for i in tokens.of_type(*types)
        ]

    backend.add_special_tokens(added(*SPECIAL))
    backend.add_tokens(added(TokenType.USER_DEFINED))


def gguf_vocabulary(
    tokens: GgufTokens,
    token_bytes: Iterable[bytes],
    *,
    add_bos: bool,
    strip_start: bool = False,
    usual: Mapping[str, str] | None = None,
) -> Vocabulary:
    """`add_bos` is what an absent add_bos_token means, `usual` the text of the token that an absent key means."""
    fields, usual = tokens.fields, usual or {}
    whole = {tokens.texts[i]: i for i in tokens.of_type(*LITERAL)}
    named = {key: tokens.named_id(key) for key in (BOS_KEY, *END_KEYS)}
    named |= {key: whole.get(text) for key, text in usual.items() if named[key] is None}
    ends = [*(named[key] for key in END_KEYS), *map(whole.get, END_TEXTS)]
    if fields.flag("add_eos_token", False):
        raise UnsupportedModelError(
            f"{fields.where}: tokenizer.ggml.add_eos_token is true",
            hint="only models that continue a prompt can be run",
        )
    bos = named[BOS_KEY]
    others = {key: tokens.named_id(key) for key in OTHER_KEYS}
    return Vocabulary(
        token_bytes=tuple(token_bytes),
        special_ids=frozenset(tokens.of_type(*SPECIAL)),
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        add_bos=bos is not None and fields.flag("add_bos_token", add_bos),
        strip_start=strip_start,
        named_texts={OTHER_KEYS[key]: tokens.texts[i] for key, i in others.items() if i is not None},
    )
