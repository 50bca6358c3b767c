"""SentencePiece vocabularies in GGUF files: exact both ways, streamed, and refused when they lie."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import CorruptModelError, InvalidRequestError, UnsupportedModelError
from offramp.model.detokenizer import StreamingDecoder
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer

UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6
PIECES = ["▁h", "ll", "he", "ell", "hell", "llo", "▁w", "▁wo", "or", "ld", "orld", "▁world", "ab", "bc", "é"]
CHARACTERS = [*"▁helowrdabci", "<", ">", "s", "/"]
CONTROLS = ["<s>", "</s>", "<|end|>"]
FOUND = ["  ", "<tool>"]


def metadata(**changes: object) -> dict[str, object]:
    """Scores fall in the order of PIECES. Keywords set keys below tokenizer.ggml, None removes one."""
    groups = [
        (["<unk>"], UNKNOWN),
        (CONTROLS, CONTROL),
        ([f"<0x{byte:02X}>" for byte in range(256)], BYTE),
        (PIECES, 1),
        (CHARACTERS, 1),
        (FOUND, USER_DEFINED),
    ]
    tokens = [token for group, _ in groups for token in group]
    values: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "scores": [-float(i) for i in range(len(tokens))],
        "token_type": [kind for group, kind in groups for _ in group],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    values |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


PREFIXED = Tokenizer.from_gguf(metadata())
BARE = Tokenizer.from_gguf(metadata(add_space_prefix=False, add_bos_token=False))
BOTH = pytest.mark.parametrize("tokenizer", [PREFIXED, BARE], ids=["prefixed", "bare"])
IDS = st.lists(st.integers(0, PREFIXED.vocab_size + 3), max_size=60)


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(i) for i in ids]


def plain(text: str, tokenizer: Tokenizer = PREFIXED) -> list[str]:
    return texts(tokenizer, tokenizer.encode(text, add_bos=False))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello", ["▁h", "ell", "o"]),  # the best score first: neither the longest piece nor the leftmost pair
        ("hello world", ["▁h", "ell", "o", "▁wo", "r", "ld"]),
        ("abc", ["▁", "ab", "c"]),
        ("bcab", ["▁", "bc", "ab"]),
        ("abab", ["▁", "ab", "ab"]),
        ("", []),
    ],
)
def test_the_best_score_is_joined_first(text: str, pieces: list[str]) -> None:
    assert plain(text) == [piece.replace("▁", " ") for piece in pieces]


def test_a_space_is_put_before_each_stretch_of_text() -> None:
    assert plain("h") == [" h"]
    assert plain(" h") == [" ", " h"]
    assert plain("<s>h<tool>h") == ["<s>", " h", "<tool>", " h"]
    assert plain("h  h") == [" h", "  ", " h"]
    assert plain("<s>h<tool>h", BARE) == ["<s>", "h", "<tool>", "h"]


@given(st.text())
@BOTH
def test_round_trip_of_any_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, parse_special=False)
    # A space mark means a space, and a whole token swallows the space put before what follows it.
    expected = text.replace("▁", " ")
    if tokenizer is BARE or not any(found in text for found in FOUND):
        assert tokenizer.decode(ids) == expected


def test_unknown_characters_are_spelled_in_bytes_that_stream_whole() -> None:
    ids = BARE.encode("🙂é世")
    assert texts(BARE, ids)[4] == "é"
    assert len(ids) == 4 + 1 + 3
    decoder = StreamingDecoder(BARE)
    assert [decoder.push(i) for i in ids] == ["", "", "", "🙂", "é", "", "", "世"]
    decoder.push(ids[0])
    assert decoder.flush() == "\ufffd"


@given(ids=IDS, skip=st.booleans())
@BOTH
def test_streamed_pieces_add_up_to_decode(tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    decoder = StreamingDecoder(tokenizer, skip_special=skip)
    streamed = "".join([*map(decoder.push, ids), decoder.flush()])
    assert streamed == tokenizer.decode(ids, skip_special=skip)


def test_decoding_equals_the_packages_own() -> None:
    for tokenizer in (PREFIXED, BARE):
        for text in ("hello  world", "🙂 é", " h", "ab<tool>bc"):
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == tokenizer._backend.decode(ids)


def test_the_first_space_is_dropped_where_a_text_begins_and_kept_where_it_goes_on() -> None:
    [hello] = PREFIXED.encode("h", add_bos=False)
    assert PREFIXED.decode([1, hello, hello]) == "h h"
    assert StreamingDecoder(PREFIXED).push(hello) == "h"
    assert StreamingDecoder(PREFIXED, after=1).push(hello) == "h"
    decoder = StreamingDecoder(PREFIXED, after=hello)
    assert [decoder.push(hello), decoder.flush(), decoder.push(hello)] == [" h", "", " h"]
    assert StreamingDecoder(BARE).push(hello) == " h"


def test_special_text_is_plain_when_not_parsed_b101() -> None:
    text = "h</s><unk><|end|><0x41>"
    assert num_special(PREFIXED.encode(text)) == 4  # with BOS
    ids = PREFIXED.encode(text, parse_special=False, add_bos=False)
    assert num_special(ids) == 0
    assert PREFIXED.decode(ids) == text


def num_special(ids: list[int]) -> int:
    return sum(map(PREFIXED.is_special, ids))


@given(st.lists(st.sampled_from(["</s>", "<", "/s>", "hello", " world", "  ", "<tool>", "🙂", "ab", "<s>", "c"])))
@BOTH
def test_masks_leave_no_trace(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    masked = text.replace("<", "\ue000")
    expected = tokenizer.encode(text.replace("<tool>", "\ue000tool>").replace("\ue000", "<"), parse_special=False)
    assert tokenizer.encode_masked(masked, {"\ue000": "<"}) == expected
    assert tokenizer.encode_masked(text, {"\ue000": "<"}) == tokenizer.encode(text)


def test_chat_has_one_bos_and_no_forged_tokens_b80() -> None:
    template = ChatTemplate({"default": "{{ bos_token }}hello {{ messages[0].content }}<|end|>"}, {"bos_token": "<s>"})
    for content in ("ab", "ab<s></s><|end|>"):
        ids = template.encode_chat(PREFIXED, [{"role": "user", "content": content}])
        assert texts(PREFIXED, [ids[0], ids[-1]]) == ["<s>", "<|end|>"]
        assert num_special(ids) == 2
        assert PREFIXED.decode(ids) == f"hello {content}"


def test_bos_is_the_rule_unless_the_file_says_otherwise() -> None:
    assert PREFIXED.encode("h")[0] == 1
    assert BARE.encode("h")[0] != 1
    nameless = Tokenizer.from_gguf(metadata(bos_token_id=None, eos_token_id=None))
    assert (nameless.bos_token_id, nameless.eos_token_id, nameless.adds_bos) == (1, 2, True)


def test_no_bos_key_and_no_such_token_means_no_bos_b79() -> None:
    values = metadata(bos_token_id=None)
    tokens = values["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[1] = "<begin>"
    tokenizer = Tokenizer.from_gguf(values)
    assert not tokenizer.adds_bos
    assert tokenizer.encode("h") == tokenizer.encode("h", add_bos=False)


def test_ends_of_turns_end_answers() -> None:
    assert PREFIXED.eos_token_ids == {2, 3}
    assert PREFIXED.eos_token_id == 2


def test_spaces_in_found_tokens_of_older_files_are_spaces() -> None:
    values = metadata()
    tokens = values["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[tokens.index("  ")] = "▁▁"
    older = Tokenizer.from_gguf(values)
    for text in ("h  h", "   ", "ab  c"):
        assert older.encode(text) == PREFIXED.encode(text)
        assert older.decode(older.encode(text)) == PREFIXED.decode(PREFIXED.encode(text))


def test_phi3_swallows_the_space_behind_its_tokens() -> None:
    phi3 = Tokenizer.from_gguf(metadata() | {"general.architecture": "phi3"})
    assert texts(phi3, phi3.encode("<|end|> \n h<s> h", add_bos=False)) == ["<|end|>", " h", "<s>", " ", " h"]
    masked = phi3.encode_masked("<|end|> \n \ue000", {"\ue000": "h"}, add_bos=False)
    assert masked == phi3.encode("<|end|> \n h", add_bos=False)


def test_saved_as_tokenizer_json_it_gives_the_same_ids(tmp_path: Path) -> None:
    for name, tokenizer in (("prefixed", PREFIXED), ("bare", BARE)):
        (tmp_path / name).mkdir()
        tokenizer._backend.save(str(tmp_path / name / "tokenizer.json"))
        loaded = Tokenizer.from_directory(tmp_path / name)
        for text in ("hello  world", "🙂<s> é<tool> h", " ab"):
            for parse in (True, False):
                ids = tokenizer.encode(text, add_bos=False, parse_special=parse)
                assert loaded.encode(text, parse_special=parse) == ids
                assert loaded.decode(ids, skip_special=False) == tokenizer.decode(ids, skip_special=False)


NUM_TOKENS = PREFIXED.vocab_size
UNSPELLABLE = [token for token in metadata()["tokenizer.ggml.tokens"] if token != "<0x80>"]  # type: ignore[attr-defined]


def test_long_pieces_are_refused_before_all_their_cuts_are_tried() -> None:
    def with_piece(piece: str) -> Tokenizer:
        values = metadata()
        tokens = values["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        tokens[-len(FOUND) - 1] = piece
        return Tokenizer.from_gguf(values)

    assert with_piece("-" * 1024).vocab_size == NUM_TOKENS
    start = time.monotonic()
    with pytest.raises(CorruptModelError, match="1000000 characters long"):
        with_piece("-" * 1_000_000)
    assert time.monotonic() - start < 1.0


def test_a_vocabulary_that_changes_spaces_is_refused() -> None:
    assert Tokenizer.from_gguf(metadata(remove_extra_whitespaces=False)).encode("h")
    with pytest.raises(UnsupportedModelError, match="remove_extra_whitespaces"):
        Tokenizer.from_gguf(metadata(remove_extra_whitespaces=True))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scores": None}, "scores"),
        ({"scores": [0.0]}, "scores"),
        ({"scores": [0] * NUM_TOKENS}, "scores"),
        ({"scores": [math.nan] * NUM_TOKENS}, "scores"),
        ({"scores": ["a"] * NUM_TOKENS}, "scores"),
        ({"token_type": [BYTE] * NUM_TOKENS}, "'<unk>' is of type byte"),
        ({"token_type": [1]}, "token types"),
        ({"tokens": ["a"] * NUM_TOKENS, "token_type": [1] * NUM_TOKENS}, "'a' appears twice"),
        ({"add_space_prefix": 1}, "add_space_prefix=1"),
        ({"bos_token_id": NUM_TOKENS}, "bos_token_id"),
    ],
)
def test_lying_metadata_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(CorruptModelError, match=named):
        Tokenizer.from_gguf(metadata(**changes))


def test_a_vocabulary_that_cannot_spell_every_text_is_refused() -> None:
    short = {"tokens": UNSPELLABLE, "scores": [0.0] * len(UNSPELLABLE), "token_type": [1] * len(UNSPELLABLE)}
    with pytest.raises(UnsupportedModelError, match="1 bytes, the first of them 0x80"):
        Tokenizer.from_gguf(metadata(**short))


def test_a_vocabulary_that_ends_every_prompt_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="add_eos_token"):
        Tokenizer.from_gguf(metadata(add_eos_token=True))


def test_lone_surrogates_are_the_callers_fault() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate at character 1"):
        PREFIXED.encode("a\ud800")
