"""Numbers in running text."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = r"(?:(?<![\w.)])-)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
"""A pattern: with a sign where nothing stands before it, perhaps with commas between thousands."""

FINAL_MARK = "####"
"""Before a solution's result, in GSM8K."""

_NUMBER = re.compile(NUMBER)


def final_number(text: str) -> Decimal | None:
    """The first number behind the last mark, or the last number of a text without one; None if there is none."""
    _, mark, tail = text.rpartition(FINAL_MARK)
    numbers = _NUMBER.findall(tail.replace("\N{MINUS SIGN}", "-"))
    if not numbers:
        return None
    return Decimal(numbers[0 if mark else -1].replace(",", ""))
