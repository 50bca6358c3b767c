"""Tokens of one choice -> the text its reader gets: whole characters, cut before a stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offramp.core import Ids
from offramp.model.detokenizer import StreamingDecoder
from offramp.model.stopping import StopMatcher
from offramp.model.tokenizer import Tokenizer


class ChoiceText:
    """Decodes token by token and watches for stop strings; one that a token before `min_tokens` completes is text.

    The engine watches one of these to end the sequence, the reader's side decodes with another: both see the same.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: tuple[str, ...],
        min_tokens: int,
        *,
        prompt: Sequence[int] | Ids = (),
        shown: Collection[int] = (),
    ) -> None:
        """`prompt` is what the choice continues; `shown` are special tokens whose text counts."""
        self._decoder = StreamingDecoder(tokenizer, shown=shown, after=int(prompt[-1]) if len(prompt) else None)
        self._matcher = StopMatcher(stops)
        self._min_tokens = min_tokens
        self._num_tokens = 0

    def push(self, token_id: int) -> tuple[str, bool]:
        """The text to show now, and whether this token completed a stop string (then nothing more may be pushed)."""
        self._num_tokens += 1
        return self._matcher.push(self._decoder.push(token_id), passing=self._num_tokens < self._min_tokens)

    def watch(self, token_id: int) -> bool:
        """`push` for the engine, which wants no text (`offramp.core.TextStop`)."""
        return self.push(token_id)[1]

    def flush(self) -> str:
        """The text held back until the end: an open character, the beginning of a stop string. Empty after a stop."""
        if self._matcher.stopped:
            return ""
        shown, _ = self._matcher.push(self._decoder.flush(), passing=True)
        return shown + self._matcher.flush()
