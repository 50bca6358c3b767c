"""The space that SentencePiece puts before a text, where only the text's very beginning gets one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

ONLY_FIRST = '"prepend_scheme":"first"'
NEVER = '"prepend_scheme":"never"'


def without_first_space(step: PreTokenizer | None) -> PreTokenizer | None:
    """What `step` does in the middle of a text; itself, if that is no different."""
    from tokenizers import Tokenizer

    if step is None or ONLY_FIRST not in (state := step.__getstate__().decode()):
        return step
    model = {"type": "BPE", "vocab": {}, "merges": []}
    around = {"version": "1.0", "pre_tokenizer": json.loads(state.replace(ONLY_FIRST, NEVER)), "model": model}
    within: PreTokenizer = Tokenizer.from_str(json.dumps(around)).pre_tokenizer
    return within
