"""ROUGE-L over token ids: how much of one answer is in another, in the same order."""

from __future__ import annotations

from collections.abc import Sequence


def rouge_l(one: Sequence[int], other: Sequence[int]) -> float:
    """F1 of the longest common subsequence's shares of both, in [0, 1]; two empty ones are equal."""
    if not one and not other:
        return 1.0
    return 2 * common_len(one, other) / (len(one) + len(other))


def common_len(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common subsequence.

    Bit n of `rows` is 0 where the table's row rises from column n to n + 1: one addition of long integers a token
    (Crochemore and others, 2001), instead of a table.
    """
    where: dict[int, int] = {}
    for place, token in enumerate(one):
        where[token] = where.get(token, 0) | 1 << place
    whole = (1 << len(one)) - 1
    rows = whole
    for token in other:
        matches = rows & where.get(token, 0)
        rows = (rows + matches | rows - matches) & whole
    return len(one) - rows.bit_count()
