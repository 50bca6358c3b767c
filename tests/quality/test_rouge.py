from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offramp.quality.rouge import common_len, rouge_l

texts = st.lists(st.integers(0, 4), max_size=80)


def by_table(one: list[int], other: list[int]) -> int:
    """The textbook's table."""
    row = [0] * (len(one) + 1)
    for token in other:
        before = row
        row = [0]
        for place, mine in enumerate(one):
            row.append(before[place] + 1 if mine == token else max(row[place], before[place + 1]))
    return row[-1]


@given(texts, texts)
def test_the_common_length_is_the_table_s(one: list[int], other: list[int]) -> None:
    assert common_len(one, other) == by_table(one, other)


def test_known_values() -> None:
    """The police-and-gunman example of the paper that introduced ROUGE: 3 of 4 words in order."""
    assert rouge_l([1, 2, 3, 4], [1, 5, 3, 4]) == 0.75
    assert rouge_l([1, 2, 3, 4], [3, 4, 5, 1]) == 0.5
    assert rouge_l([1, 2], [1, 2, 3, 4]) == 2 / 3
    assert rouge_l([], []) == 1.0
    assert rouge_l([1], []) == rouge_l([1], [2]) == 0.0


@given(texts)
def test_a_text_is_itself(one: list[int]) -> None:
    assert rouge_l(one, list(one)) == 1.0
