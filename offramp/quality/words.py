"""Words of texts as numbers, for measures that compare sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from offramp.quality.rouge import rouge_l

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Runs of letters and digits, in lower case. In ASCII those of the package rouge-score; other scripts count too."""
    return _WORD.findall(text.lower())


def rouge_l_of_texts(one: str, other: str) -> float:
    """ROUGE-L over words, in [0, 1]; 0 where a text has none."""
    first, second = words(one), words(other)
    return rouge_l(*_numbered(first, second)) if first and second else 0.0


def contains_words(text: str, wanted: str) -> bool:
    """Whether the wanted words stand in a text, one after the other. Never, if none are wanted."""
    sought = words(wanted)
    return bool(sought) and f" {' '.join(sought)} " in f" {' '.join(words(text))} "


def same_but_spaces(one: str, other: str) -> bool:
    """Whether texts are equal, white space aside."""
    return one.split() == other.split()


def is_one_of(text: str, wanted: Iterable[str]) -> bool:
    """Whether a text equals one of these, white space aside."""
    return any(same_but_spaces(text, each) for each in wanted)


def _numbered(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    """Equal words have equal numbers."""
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(word, len(numbers)) for word in text] for text in (one, other))
    return first, second
