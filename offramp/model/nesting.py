"""How much nested lists and mappings hold: what may be walked by recursion, printed or copied at a bearable cost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import chain

OBJECT = 8  # what any value counts, about the punctuation around it in JSON
MAX_DEPTH = 64  # lists within lists; deeper ones would end Python's own stack


class NestingError(Exception):
    """Lists and mappings nested too deep, or one that holds itself."""


def nested_size(value: object, most: int = sys.maxsize, depth: int = 0) -> int:
    """OBJECT for each value within `value` plus the characters of texts; what is shared counts each time it is met.

    Stops counting soon after it exceeds `most`. Raises NestingError below MAX_DEPTH levels.
    """
    if isinstance(value, str | bytes):
        return OBJECT + len(value)
    if isinstance(value, range):
        return OBJECT + OBJECT * len(value)
    children: Iterable[object]
    if isinstance(value, list | tuple | set | frozenset):
        children = value
    elif isinstance(value, Mapping):
        children = chain.from_iterable(value.items())
    else:
        return OBJECT
    if depth == MAX_DEPTH:
        raise NestingError(f"nested more than {MAX_DEPTH} deep")
    size = OBJECT
    for child in children:
        size += OBJECT + len(child) if type(child) is str else nested_size(child, most - size, depth + 1)
        if size > most:
            break
    return size
