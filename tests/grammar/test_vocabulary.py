"""The vocabularies of both kinds of tokenizer, as grammars see them; and many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from offramp.core import StructuredOutputsParams
from offramp.errors import UnsupportedModelError
from offramp.grammar import Grammars
from offramp.model.tokenizer import Tokenizer
from offramp.testing.models import END_OF_TURN, chat_tokenizer
from tests.grammar.grammars import allowed_ids
from tests.model.test_gguf_sentencepiece import BARE, PREFIXED

END = 2
TEXTS = ("hello world", " hello  world", "ab\nc", "\u4e16\u754c \u00e9", "<s>ab</s>", "<0x41>", '{"a": [1, "\u00fc"]}')


@pytest.mark.parametrize("tokenizer", [PREFIXED, BARE], ids=["prefixed", "bare"])
@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_spells_what_is_forced(tokenizer: Tokenizer, text: str) -> None:
    """No space is put before a text inside an answer, and control tokens are never its parts."""
    grammars = Grammars(tokenizer, tokenizer.vocab_size + 3, {END, 3})
    matcher = grammars.compile(StructuredOutputsParams(choice=[text])).matcher()
    ids: list[int] = []
    while not matcher.ended:
        forced = matcher.forced(5)
        ids.append(forced[0] if forced else allowed_ids(matcher)[0])
        matcher.advance(ids[-1])
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text
    assert not any(map(tokenizer.is_special, ids))
    assert allowed_ids(matcher) == [END, 3], "every end token ends it"


def test_a_text_that_the_tokenizer_changes_is_spelt_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "encoder_within", lambda self: lambda text: self.encode(text.upper()))
    matcher = Grammars(BARE, BARE.vocab_size, {END}).compile(StructuredOutputsParams(choice=["hello \u4e16"])).matcher()
    ids = matcher.forced(99)
    assert b"".join(map(BARE.token_bytes, ids)).decode() == "hello \u4e16"
    assert len(ids) < 9


def test_a_model_without_an_end_token() -> None:
    with pytest.raises(UnsupportedModelError, match="no end token"):
        Grammars(chat_tokenizer(), 10, {END_OF_TURN + 100}).compile(StructuredOutputsParams(regex="a"))


def test_threads_compile_and_match_at_once() -> None:
    grammars = Grammars(chat_tokenizer(), chat_tokenizer().vocab_size, {END_OF_TURN})
    ids = chat_tokenizer().encode("abcabc")

    def work(number: int) -> bool:
        for round_ in range(10):
            pattern = f"(abc){{1,{2 + (number + round_) % 5}}}"
            matcher = grammars.compile(StructuredOutputsParams(regex=pattern)).matcher()
            for token in ids:
                assert matcher.allowed()[token]
                matcher.advance(token)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))
