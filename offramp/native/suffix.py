"""Suffix automata over token ids in C++: what followed the longest context that was seen before, as a tree.

Knows texts and counts only. Not for use by several threads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.native._native import SUFFIX_GRADES, suffix_grow
from offramp.native._native import SuffixAutomaton as _Automaton
from offramp.native._native import SuffixReader as _Reader

Worth = NDArray[np.float32]  # [len(GRADES)], in [0, 1]: how likely an offered token of each grade is right


class Grade(NamedTuple):
    """What is known of an offered token: the lower bounds of a bucket.

    `order` 0 is the longest matching context that was ever followed, 1 the next shorter one, as far as it offers other
    tokens. `share` is the token's count / (the counts of all that followed the context, together, + 1/2).
    """

    order: int
    context_len: int
    share: float


GRADES = tuple(Grade(*bounds) for bounds in SUFFIX_GRADES)


class SuffixReader:
    """Reads a text token by token beside an automaton and knows its longest suffix that occurs there."""

    __slots__ = ("_native",)

    def __init__(self, native: _Reader) -> None:
        self._native = native

    @property
    def native(self) -> _Reader:
        return self._native

    @property
    def match_len(self) -> int:
        return self._native.match_len

    def advance(self, token_ids: Ids) -> None:
        """Read on. Amortised constant time a token."""
        self._native.advance(token_ids)


class SuffixAutomaton:
    """Several texts of token ids (any int32), extended token by token. Never holds more than `max_bytes`.

    A token's count is carried along at most `max_walk` shorter contexts, so that periodic text takes linear time; the
    shortest contexts of such text are then counted too low.
    """

    __slots__ = ("_native",)

    def __init__(self, max_bytes: int, *, max_walk: int = 64) -> None:
        self._native = _Automaton(max_bytes, max_walk)

    @property
    def num_bytes(self) -> int:
        return self._native.num_bytes

    @property
    def num_tokens(self) -> int:
        return self._native.num_tokens

    def extend(self, token_ids: Ids) -> int:
        """Append to the newest text; returns how many ids were taken: fewer than given when memory ran out."""
        return self._native.extend(token_ids)

    def begin_text(self) -> None:
        """What comes next starts a new text."""
        self._native.begin_text()

    def count(self, token_ids: Ids) -> int:
        """How often this string of at least one token occurred, as far as counts were carried."""
        return self._native.count(token_ids)

    def reader(self) -> SuffixReader:
        """For another text, from its beginning."""
        return SuffixReader(self._native.reader())

    def repeated(self) -> SuffixReader:
        """Standing at the longest suffix of the newest text that occurs elsewhere too; outdated by `extend`."""
        return SuffixReader(self._native.repeated())


@dataclass(frozen=True, slots=True)
class Growth:
    """A tree by falling product of worth along the paths; parents come first, -1 is the end of the text."""

    token_ids: list[int]  # [nodes]
    parents: list[int]  # [nodes]
    sources: list[int]  # [nodes], index of the reader that thought most of the token
    grades: list[int]  # [nodes], index into GRADES


MAX_READERS = 4


def grow(
    readers: Sequence[SuffixReader], worths: Sequence[Worth], *, max_nodes: int, max_depth: int, min_score: float
) -> Growth:
    """What may follow the text that all the readers stand in, down to paths whose product of worth is `min_score`."""
    assert len(readers) <= MAX_READERS
    native = [reader.native for reader in readers]
    return Growth(*suffix_grow(native, list(worths), max_nodes, max_depth, min_score))
