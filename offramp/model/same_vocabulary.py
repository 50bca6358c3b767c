"""Do two tokenizers mean the same by their token ids?"""

from __future__ import annotations

from offramp.model.tokenizer import Tokenizer


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """Where two vocabularies first differ, in words; padding rows of an embedding are no part of one."""
    for token in range(min(target.vocab_size, draft.vocab_size)):
        pair = [_meaning(tokenizer, token) for tokenizer in (target, draft)]
        if pair[0] != pair[1]:
            return f"token {token} is {pair[1]} there and {pair[0]} here"
    if target.vocab_size != draft.vocab_size:
        return f"{draft.vocab_size} tokens there and {target.vocab_size} here"
    return None


def _meaning(tokenizer: Tokenizer, token: int) -> str:
    kind = "special " if tokenizer.is_special(token) else ""
    return f"{kind}{tokenizer.token_bytes(token)!r}"
