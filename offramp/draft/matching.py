"""How surely a text goes on as it did before, from how far it agrees with that earlier place.

A copied token that stands makes the agreement one token longer for the next, so one scale serves every depth of a
draft.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from math import exp, log2

MAX_MATCH = 32
"""Agreement beyond this many tokens tells nothing more."""
MIN_REACH = 0.05
"""A node that stands more seldom is not proposed; a first one always is, for what becomes of it teaches."""

_BUCKETS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, MAX_MATCH)


class Habit(IntEnum):
    """What followed the same few tokens before: the place copied from, and those earlier than it."""

    ONCE = 0  # seen there only
    TWICE = 1  # the last two agree
    OFTEN = 2  # the last three agree
    MIXED = 3  # the last two differ


Evidence = tuple[int, Habit]
"""Key of a score: a bucket of agreement, and the habit."""

# Log-odds that a copied token stands, as intercept and slope over log2 of the agreement: fitted to greedy answers of
# a small instruct model to chat, retrieval, summary and code prompts. Only where learning starts.
_PRIOR = {Habit.ONCE: (-0.8, 0.78), Habit.TWICE: (-0.35, 0.9), Habit.OFTEN: (0.5, 1.05), Habit.MIXED: (-1.9, 0.55)}


def evidence(match_len: int, habit: Habit) -> Evidence:
    """The key of a token that follows so many agreeing ones."""
    return _BUCKET_OF[min(match_len, MAX_MATCH)], habit


def prior(key: Evidence) -> float:
    """The chance that such a token stands, before anything was seen."""
    bucket, habit = key
    intercept, slope = _PRIOR[habit]
    return 1.0 / (1.0 + exp(-intercept - slope * log2(_BUCKETS[bucket])))


def agreement(text: Sequence[int], end: int, source: Sequence[int], source_end: int, known: int) -> int:
    """How many tokens before the two ends are equal, at most `MAX_MATCH`; the last `known` are known to be."""
    limit = min(MAX_MATCH, end, source_end)
    length = known
    while length < limit and text[end - length - 1] == source[source_end - length - 1]:
        length += 1
    return length


_BUCKET_OF = tuple(max(0, bisect_right(_BUCKETS, length) - 1) for length in range(MAX_MATCH + 1))
