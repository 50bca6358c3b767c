"""How near an answer is to an item's references: the best of them counts."""

from __future__ import annotations

from offramp.bench.workloads.item import Item
from offramp.quality import numbers, words


def rouge_l(item: Item, text: str) -> float:
    """F1 of the longest common subsequence of words."""
    return max(words.rouge_l_of_texts(reference, text) for reference in item.references)


def contains(item: Item, text: str) -> float:
    """1 if the words of a reference stand in the answer."""
    return float(any(words.contains_words(text, reference) for reference in item.references))


def exact_match(item: Item, text: str) -> float:
    """1 if the answer is a reference, white space aside."""
    return float(words.is_one_of(text, item.references))


def final_number(item: Item, text: str) -> float:
    """1 if the answer comes to a reference's number: behind `####` if it says so, or its last one."""
    number = numbers.final_number(text)
    return float(number is not None and any(numbers.final_number(each) == number for each in item.references))
