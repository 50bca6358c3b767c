"""Options under the names that a user knows: Python's in the library's messages, flags where flags were given."""

from __future__ import annotations

import re
from collections.abc import Mapping


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """The text with options by their flags; `flags` has them by Python's names.

    Names of several words are options wherever they stand; one word is one only as in "risk=2" and "risk takes ...".
    """
    for name, flag in flags.items():
        behind = r"(?!\w)" if "_" in name else r"(?==|\s+takes\b)"
        text = re.sub(rf"(?<![-\w.]){name}{behind}", flag, text)
    return text
