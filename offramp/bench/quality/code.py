"""pass@1 of one answer: does the program that it completes do what its tests want?"""

from __future__ import annotations

import re

from offramp.bench.quality.sandbox import passes
from offramp.bench.workloads.item import CodeTest, Item

_NEXT_STATEMENT = re.compile(r"\n(?=[^\s)\]}])")
"""Where a line begins at the margin: the function is over. Closing brackets may stand there."""


def pass_at_1(item: Item, text: str) -> float:
    """1 or 0. Runs the program (see `sandbox`)."""
    assert item.code is not None, "not an item of code"
    return float(passes(whole_program(item.code, text)))


def whole_program(test: CodeTest, answer: str) -> str:
    """The prompt, the answer up to where its function ends, and the tests."""
    return f"{test.before}{function_of(answer)}\n\n{test.after}\n\ncheck({test.entry_point})\n"


def function_of(answer: str) -> str:
    """The rest of the function that an answer continues."""
    return _NEXT_STATEMENT.split(answer, maxsplit=1)[0]
