"""Token id -> bytes, and what a tokenizer needs to know about its ids; plain data, no tokenizers package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SPACE_MARK = "\u2581"
"""How SentencePiece writes a space."""
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The bytes of each id, which ids are special, and how a prompt begins and an answer ends."""

    token_bytes: tuple[bytes, ...]  # [vocab]; ids without a token hold b""
    special_ids: frozenset[int]  # control tokens: never part of the text, never made from chat content
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]  # the first is the one templates call eos_token
    add_bos: bool  # whether a prompt starts with BOS unless asked otherwise
    strip_start: bool = False  # whether one leading space of a decoded text is dropped
    named_texts: Mapping[str, str] = field(default_factory=dict)  # of other tokens that templates name: pad_token, ...

    def __post_init__(self) -> None:
        assert not self.add_bos or self.bos_token_id is not None, "add_bos needs a BOS token"


def byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level BPE writes for each byte, character -> byte.

    Bytes that are visible in Latin-1 stand for themselves, the others take the characters from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def byte_level_bytes(token: str, alphabet: dict[str, int]) -> bytes:
    """The bytes of an ordinary byte-level token; a token with a character outside the alphabet is literal text."""
    try:
        return bytes(alphabet[char] for char in token)
    except KeyError:
        return token.encode("utf-8")


def byte_piece(token: str) -> int | None:
    """The byte that a SentencePiece token such as <0x0A> stands for, if it is one."""
    match = BYTE_PIECE.fullmatch(token)
    return int(match[1], 16) if match else None


def piece_bytes(token: str) -> bytes:
    """The bytes of an ordinary SentencePiece token."""
    byte = byte_piece(token)
    return token.replace(SPACE_MARK, " ").encode("utf-8") if byte is None else bytes([byte])
