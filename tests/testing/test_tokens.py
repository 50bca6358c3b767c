from __future__ import annotations

from offramp.testing.tokens import BOS, EOS, ByteTokenizer


def test_text_survives_and_specials_are_single_ids_only_when_parsed() -> None:
    tokenizer = ByteTokenizer()
    text = "né <eos> 😀"
    parsed = tokenizer.encode("<bos>" + text)
    assert parsed[0] == BOS
    assert parsed.count(EOS) == 1
    assert tokenizer.decode(parsed) == "né  😀"
    plain = tokenizer.encode(text, parse_special=False)
    assert max(plain) < 256
    assert tokenizer.decode(plain) == text
