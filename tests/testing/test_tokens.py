from __future__ import annotations

from offramp.model.detokenizer import StreamingDecoder
from offramp.testing.tokens import BOS, EOS, ByteTokenizer


def test_text_survives_and_specials_are_single_ids_only_when_parsed() -> None:
    tokenizer = ByteTokenizer()
    text = "né <eos> \x00\n😀"
    parsed = tokenizer.encode("<bos>" + text)
    assert parsed[0] == BOS
    assert parsed.count(EOS) == 1
    assert tokenizer.decode(parsed) == "né  \x00\n😀"
    plain = tokenizer.encode(text, parse_special=False)
    assert plain == list(text.encode())
    assert tokenizer.decode(plain) == text


def test_bos_is_added_when_told_and_streams_hold_half_characters() -> None:
    tokenizer = ByteTokenizer(add_bos=True)
    assert tokenizer.encode("a") == [BOS, 97]
    decoder = StreamingDecoder(tokenizer)
    assert [decoder.push(token) for token in tokenizer.encode("é!")] == ["", "", "é", "!"]
