"""A tokenizer without a vocabulary file: ids 0..255 are bytes, then a few special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

SPECIALS = ("<bos>", "<eos>", "<user>", "<assistant>")
BOS, EOS, USER, ASSISTANT = range(256, 256 + len(SPECIALS))


class ByteTokenizer:
    """Text as UTF-8 bytes; the names in SPECIALS are single ids when special tokens are parsed."""

    vocab_size = 256 + len(SPECIALS)
    bos_id = BOS
    eos_ids = (EOS,)

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Ids of a text. Without `parse_special` the special tokens' names are plain characters."""
        ids: list[int] = []
        parts = re.split(f"({'|'.join(SPECIALS)})", text) if parse_special else [text]
        for part in parts:
            special = parse_special and part in SPECIALS
            ids += [256 + SPECIALS.index(part)] if special else list(part.encode())
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes one id stands for; none for a special token."""
        assert 0 <= token < self.vocab_size, token
        return bytes([token]) if token < 256 else b""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens give nothing, broken UTF-8 the replacement character."""
        return b"".join(self.token_bytes(i) for i in ids).decode(errors="replace")
