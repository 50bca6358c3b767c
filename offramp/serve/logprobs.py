"""Log-probabilities in the shapes of OpenAI's two APIs, and prompt log-probabilities in vLLM's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offramp.core import TokenLogprobs
from offramp.llm.output import PromptLogprobs
from offramp.model.detokenizer import StreamingDecoder
from offramp.model.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have; OpenAI uses it too."""


def chat_logprobs(tokenizer: Tokenizer, entries: Iterable[TokenLogprobs]) -> dict[str, object]:
    """`choice.logprobs` of a chat: the tokens, each with its bytes and the best ones in its place."""
    content = []
    for entry in entries:
        best = [_chat_token(tokenizer, token_id, logprob) for token_id, logprob in entry.top]
        content.append({**_chat_token(tokenizer, entry.token_id, entry.logprob), "top_logprobs": best})
    return {"content": content, "refusal": None}


def prompt_logprobs(tokenizer: Tokenizer, entries: PromptLogprobs | None, most: int) -> list[object] | None:
    """vLLM's `prompt_logprobs`: for each token the `most` best ones and itself by id; null for the first."""
    if entries is None:
        return None
    return [None if entry is None else _ranked(tokenizer, entry, most) for entry in entries]


class CompletionLogprobs:
    """`choice.logprobs` of one completion, built piece by piece: offsets count the characters before each token."""

    def __init__(
        self, tokenizer: Tokenizer, *, offset: int = 0, skip_special: bool = True, after: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder = StreamingDecoder(tokenizer, skip_special=skip_special, after=after)
        self._offset = offset

    def add(self, token_ids: Sequence[int], entries: Sequence[TokenLogprobs | None], most: int) -> dict[str, object]:
        """The next tokens; an entry None has no log-probability."""
        offsets = [self._place(token_id) for token_id in token_ids]
        return {
            "tokens": [completion_token(self._tokenizer, token_id) for token_id in token_ids],
            "token_logprobs": [None if entry is None else _finite(entry.logprob) for entry in entries],
            "top_logprobs": [None if entry is None else self._top(entry, most) for entry in entries],
            "text_offset": offsets,
        }

    def _place(self, token_id: int) -> int:
        """Where the next token begins: a part of a character where the character does."""
        before, piece = self._offset, self._decoder.push(token_id)
        self._offset += len(piece)
        whole = _whole_text(self._tokenizer, token_id)
        return self._offset - len(whole) if whole is not None and piece.endswith(whole) else before

    def _top(self, entry: TokenLogprobs, most: int) -> dict[str, float]:
        """The best ones by text, and the token itself, which may not be among them."""
        pairs = [*entry.top[:most], (entry.token_id, entry.logprob)]
        named: dict[str, float] = {}
        for token_id, logprob in pairs:
            named.setdefault(completion_token(self._tokenizer, token_id), _finite(logprob))
        return named


def prompt_part(
    tokenizer: Tokenizer, token_ids: Sequence[int], entries: PromptLogprobs, most: int, text: str
) -> dict[str, object]:
    """An echoed prompt's part of `choice.logprobs`; a BOS that `text` lacks takes no characters."""
    first = token_ids[0]
    hidden = tokenizer.is_special(first) and not text.startswith(tokenizer.token_text(first))
    part = CompletionLogprobs(tokenizer, skip_special=False)
    if not hidden:
        return part.add(token_ids, entries, most)
    bos = CompletionLogprobs(tokenizer).add(token_ids[:1], entries[:1], most)
    return joined([bos, part.add(token_ids[1:], entries[1:], most)])


def joined(parts: Sequence[dict[str, object]]) -> dict[str, object]:
    """Parts of `choice.logprobs` in a row."""
    whole: dict[str, list[object]] = {}
    for part in parts:
        for name, values in part.items():
            assert isinstance(values, list)
            whole.setdefault(name, []).extend(values)
    return dict(whole)


def completion_token(tokenizer: Tokenizer, token_id: int) -> str:
    r"""A token's text; a part of a character as bytes:\xf0\x9f, OpenAI's notation for completions."""
    return _text(tokenizer, token_id, "bytes:")


def _chat_token(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, object]:
    text, raw = _text(tokenizer, token_id, ""), list(tokenizer.token_bytes(token_id))
    return {"token": text, "logprob": _finite(logprob), "bytes": raw}


def _ranked(tokenizer: Tokenizer, entry: TokenLogprobs, most: int) -> dict[str, object]:
    ranked = [(entry.token_id, entry.logprob, entry.rank)]
    ranked += [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top[:most], 1)]
    return {
        str(token_id): {"logprob": _finite(logprob), "rank": rank, "decoded_token": tokenizer.token_text(token_id)}
        for token_id, logprob, rank in reversed(ranked)
    }


def _text(tokenizer: Tokenizer, token_id: int, prefix: str) -> str:
    whole = _whole_text(tokenizer, token_id)
    return prefix + "".join(f"\\x{byte:02x}" for byte in tokenizer.token_bytes(token_id)) if whole is None else whole


def _whole_text(tokenizer: Tokenizer, token_id: int) -> str | None:
    """The token's text; None if it has parts of characters."""
    try:
        return tokenizer.token_bytes(token_id).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
