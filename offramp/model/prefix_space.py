"""The space that SentencePiece puts before a text, or only before its very beginning; and how to leave it out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
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


def copy_without_space(backend: Tokenizer) -> Tokenizer:
    """A copy that puts no space before any text, so that pieces of a text can be encoded alone."""
    from tokenizers import Tokenizer

    whole = json.loads(backend.to_str())
    for key in ("normalizer", "pre_tokenizer"):
        whole[key] = _without_space(whole[key])
    return Tokenizer.from_str(json.dumps(whole))


def _without_space(step: Any) -> Any:
    """A step, or a sequence of steps, that prepends nothing; None for one that does nothing else."""
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Sequence":
        [inner] = [key for key in step if key != "type"]
        return {**step, inner: [kept for each in step[inner] if (kept := _without_space(each)) is not None]}
    without = {"prepend_scheme": "never", "add_prefix_space": False}
    return {key: without.get(key, value) for key, value in step.items()}
