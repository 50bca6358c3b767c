"""The model's vocabulary as llguidance reads it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from offramp.errors import UnsupportedModelError
from offramp.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class _Words:
    """The bytes of each token, and how text inside an answer is cut into tokens.

    Where a grammar forces text, the tokens are those that the tokenizer makes of it, which the model knows best.
    """

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_id: int) -> None:
        self.tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_texts)
        self.eos_token_id = eos_token_id
        self.bos_token_id = tokenizer.bos_token_id
        self._encode = tokenizer.encoder_within()
        special = set(self.special_token_ids)
        self._ids = {word: token for token, word in enumerate(self.tokens) if word and token not in special}
        self._longest = tokenizer.longest_token_len

    def __call__(self, text: str) -> list[int]:
        ids = self._encode(text)
        whole = text.encode()
        if b"".join([self.tokens[token] for token in ids]) == whole:
            return ids
        return self._longest_first(whole)

    def _longest_first(self, text: bytes) -> list[int]:
        """The longest token at each place, up to what no token spells; where the tokenizer changes a text."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            token, end = next(
                ((self._ids[word], end) for end in ends if (word := text[start:end]) in self._ids), (-1, 0)
            )
            if token < 0:
                break
            ids.append(token)
            start = end
        return ids


def grammar_vocabulary(tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Collection[int]) -> LLTokenizer:
    """Of a model with `vocab_size` ids; a second or so for 50,000 tokens. Control tokens are no text."""
    from llguidance import LLTokenizer

    ends = sorted(token for token in eos_token_ids if token < vocab_size)
    if not ends:
        raise UnsupportedModelError(
            "the model has no end token, with which an answer under a grammar could end",
            hint="its files should name eos_token",
        )
    return LLTokenizer(_Words(tokenizer, vocab_size, ends[0]), eos_token=ends)  # type: ignore[arg-type]
