"""A grammar over bare ids: what may come depends on place and last token, and now and then it is one id alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

END = 1
"""The end token of the matrix' requests."""
FIRST_END, LAST = 10, 17
"""Output tokens after which the end token may come, and after which nothing else may."""


class Wheel:
    """`Grammar` over so many ids."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def matcher(self) -> WheelMatcher:
        return WheelMatcher(self.vocab_size, [])


class WheelMatcher:
    """Asserts that only what is allowed comes."""

    def __init__(self, vocab_size: int, output: list[int]) -> None:
        self.output = output
        self.num_moves = 0
        self._vocab_size = vocab_size

    @property
    def ended(self) -> bool:
        return END in self.output or len(self.output) >= LAST

    def allowed(self) -> NDArray[np.bool_]:
        place, last = len(self.output), self.output[-1] if self.output else 0
        ids = np.arange(self._vocab_size)
        if self.ended:
            return ids == END
        if place % 7 in (3, 4):
            return ids == 2 + (5 * last + place) % (self._vocab_size - 2)
        allowed = (ids + last) % 4 != 0
        allowed[END] = place >= FIRST_END
        return allowed

    def advance(self, token_id: int) -> None:
        assert self.allowed()[token_id], "a token that the grammar rules out"
        self.output.append(token_id)
        self.num_moves += 1

    def rewind(self, count: int) -> None:
        assert 0 < count <= len(self.output)
        del self.output[-count:]
        self.num_moves += 1

    def follows(self, token_ids: Sequence[int]) -> int:
        fork = self.fork()
        for count, token in enumerate(token_ids):
            if not fork.allowed()[token]:
                return count
            fork.advance(token)
        return len(token_ids)

    def fork(self) -> WheelMatcher:
        return WheelMatcher(self._vocab_size, list(self.output))

    def forced(self, most: int) -> tuple[int, ...]:
        fork = self.fork()
        while len(fork.output) < len(self.output) + most and not fork.ended and fork.allowed().sum() == 1:
            fork.advance(int(fork.allowed().argmax()))
        return tuple(fork.output[len(self.output) :])
