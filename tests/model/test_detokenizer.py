"""Streamed text equals text decoded at once, whatever the ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.model.detokenizer import StreamingDecoder
from offramp.model.tokenizer import Tokenizer

IDS = st.lists(st.integers(0, 280), max_size=60)


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> tuple[list[str], str]:
    decoder = StreamingDecoder(tokenizer, skip_special=skip_special)
    return [decoder.push(i) for i in ids], decoder.flush()


@given(ids=IDS, skip=st.booleans())
def test_pieces_add_up_to_decode(small_tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    pieces, rest = stream(small_tokenizer, ids, skip_special=skip)
    assert "".join(pieces) + rest == small_tokenizer.decode(ids, skip_special=skip)


@given(st.text(alphabet=st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"])))
def test_valid_text_never_shows_half_a_character(small_tokenizer: Tokenizer, text: str) -> None:
    ids = small_tokenizer.encode(text, parse_special=False)
    pieces, rest = stream(small_tokenizer, ids)
    assert "".join(pieces) == text
    assert rest == ""
    assert not any("\ufffd" in piece for piece in pieces)


def test_emoji_sequences_come_whole_b37(small_tokenizer: Tokenizer) -> None:
    text = "\U0001f468\u200d\U0001f469\u200d\U0001f467 é 世"
    ids = small_tokenizer.encode(text)
    assert len(ids) > len(text)
    pieces, rest = stream(small_tokenizer, ids)
    assert "".join(pieces) == text
    assert rest == ""
    assert pieces[:4] == ["", "", "", "\U0001f468"]


def test_unfinished_and_broken_bytes(small_tokenizer: Tokenizer) -> None:
    by_byte = {small_tokenizer.token_bytes(i): i for i in range(4, 260)}
    lead, letter = by_byte[b"\xe4"], by_byte[b"a"]
    assert stream(small_tokenizer, [lead]) == ([""], "\ufffd")
    assert stream(small_tokenizer, [lead, letter]) == (["", "\ufffda"], "")
    special = 2
    rest = [by_byte[b"\xb8"], by_byte[b"\x96"]]
    assert stream(small_tokenizer, [lead, special, *rest]) == (["", "", "", "世"], "")


def test_flush_starts_anew(small_tokenizer: Tokenizer) -> None:
    decoder = StreamingDecoder(small_tokenizer)
    by_byte = {small_tokenizer.token_bytes(i): i for i in range(4, 260)}
    decoder.push(by_byte[b"\xe4"])
    decoder.flush()
    assert decoder.push(by_byte[b"a"]) == "a"


@pytest.mark.real_model
@pytest.mark.parametrize("seed", range(5))
def test_default_model_streams_random_ids(default_tokenizer: Tokenizer, seed: int) -> None:
    import random

    ids = random.Random(seed).choices(range(default_tokenizer.vocab_size), k=2000)
    pieces, rest = stream(default_tokenizer, ids)
    assert "".join(pieces) + rest == default_tokenizer.decode(ids)
    assert default_tokenizer.decode(ids) == default_tokenizer._backend.decode(ids, skip_special_tokens=True)
