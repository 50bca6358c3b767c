"""Token ids -> text while they are generated: whole characters only, equal in sum to `Tokenizer.decode`."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from offramp.model.tokenizer import Tokenizer


class StreamingDecoder:
    """Turns one token at a time into text, at a cost that depends on the token alone.

    A character spread over several tokens appears when its last byte has come. U+FFFD stands for bytes that no
    continuation can make valid; bytes that still could be completed are held until `flush`.

    `after` is the token before the first one. The space that SentencePiece puts before a text is dropped where one
    begins, at the very start or behind a special token; a text that goes on keeps the space between its words.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        shown: Collection[int] = (),
        after: int | None = None,
    ) -> None:
        """`shown` are special tokens whose text counts all the same."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = shown
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._begins = after is None or tokenizer.is_special(after)
        self._strip = self._begins and tokenizer.strips_first_space

    def push(self, token_id: int) -> str:
        """The text that is complete now and has not been returned before; may be empty."""
        if self._skip_special and self._tokenizer.is_special(token_id) and token_id not in self._shown:
            return ""
        return self._from_start(self._utf8.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """What remains at the end, an unfinished character as U+FFFD; the decoder then starts anew."""
        rest = self._from_start(self._utf8.decode(b"", final=True))
        self._utf8.reset()
        self._strip = self._begins and self._tokenizer.strips_first_space
        return rest

    def _from_start(self, text: str) -> str:
        if not (self._strip and text):
            return text
        self._strip = False
        return text.removeprefix(" ")
