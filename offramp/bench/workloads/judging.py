"""By which metric the answers of a task are judged: told from the form of its references."""

from __future__ import annotations

import re
from collections.abc import Sequence

from offramp.quality.numbers import FINAL_MARK, NUMBER

NAMED = ("rouge_l", "contains", "exact_match", "final_number")
"""What a line may name; each needs a reference."""

SHORT_WORDS = 5
"""Longest reference that is looked for in an answer; longer ones are compared with it."""

_RESULT = re.compile(rf"(?:.*{FINAL_MARK}\s*)?\$?{NUMBER}", re.DOTALL)
_PARSE = re.compile(r"\[IN:\w.*\]", re.DOTALL)


def metric_of(references: Sequence[str]) -> str:
    """For all of a task's references together, of which there is one at least.

    Numbers, or solutions that end in one as GSM8K's: `final_number`. Bracketed parses: `exact_match`. A few words
    each: `contains`. Others: `rouge_l`.
    """
    assert references, "nothing to tell by"
    texts = [reference.strip() for reference in references]
    if all(_RESULT.fullmatch(text) for text in texts):
        return "final_number"
    if all(_PARSE.fullmatch(text) for text in texts):
        return "exact_match"
    if all(len(text.split()) <= SHORT_WORDS for text in texts):
        return "contains"
    return "rouge_l"
