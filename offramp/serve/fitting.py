"""Texts that no context could hold are refused by their length, before anybody spends time on their tokens."""

from __future__ import annotations

from collections.abc import Iterable

from offramp.errors import ContextLengthError
from offramp.llm.loading import LoadedModel

LEAST_TOKEN_BYTES = 16
"""Room for tokenizers that drop or join what they can't spell."""


def most_bytes(loaded: LoadedModel) -> int:
    """Of a text that fits: as many of the longest token as the context holds."""
    return loaded.max_context * max(LEAST_TOKEN_BYTES, loaded.tokenizer.longest_token_len)


def check_texts(texts: Iterable[str], loaded: LoadedModel, param: str) -> None:
    """Refuse texts that are too long together, as parts of one prompt."""
    num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    most = most_bytes(loaded)
    if num_bytes > most:
        context = loaded.max_context
        raise ContextLengthError(
            f"{param} has {num_bytes} bytes of text and the context holds {context} tokens, its answer included",
            hint=f"shorten it: no text of more than {most} bytes fits",
            param=param,
        )
