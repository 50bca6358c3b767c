from __future__ import annotations

from decimal import Decimal

import pytest

from offramp.quality.numbers import final_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("He pays 3*2=<<3*2=6>>6 dollars\n#### 6", "6"),
        ("#### $1,234.50 for 2 of them", "1234.5"),
        ("#### 1\nno: #### 7", "7"),
        ("So 12 boxes hold 5 each, 60 in all.", "60"),
        ("It costs $18.00.", "18"),
        ("It is 1,234,567", "1234567"),
        ("the pages 1,23,4", "4"),
        ("minus: -5", "-5"),
        ("\N{MINUS SIGN}5", "-5"),
        ("12-5", "5"),
        ("x-5", "5"),
        ("it is .5", "0.5"),
        ("007", "7"),
    ],
)
def test_the_final_number(text: str, number: str) -> None:
    assert final_number(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "none at all", "5 and then ####", "#### six"])
def test_no_number(text: str) -> None:
    assert final_number(text) is None
