"""Streamed text equals decoded text, stop strings never show, and min_tokens passes over early ones."""

from __future__ import annotations

import pytest

from offramp.llm.text import ChoiceText
from offramp.model.tokenizer import Tokenizer
from offramp.testing.models import chat_tokenizer
from tests.model.token_lines import sentencepiece_metadata

TOKENIZER = chat_tokenizer()


def pieces(text: str, stops: tuple[str, ...] = (), min_tokens: int = 0) -> tuple[list[str], bool]:
    """What each token shows, then the flush; and whether a stop came."""
    choice = ChoiceText(TOKENIZER, stops, min_tokens)
    shown = []
    for token in TOKENIZER.encode(text):
        piece, stopped = choice.push(token)
        shown.append(piece)
        if stopped:
            return [*shown, choice.flush()], True
    return [*shown, choice.flush()], False


def test_text_comes_in_whole_characters() -> None:
    shown, _ = pieces("é世👨‍👩‍👧!")
    assert "".join(shown) == "é世👨‍👩‍👧!"
    assert not any("\ufffd" in piece for piece in shown)


def test_an_unfinished_character_is_flushed_as_replacement() -> None:
    choice = ChoiceText(TOKENIZER, (), 0)
    assert choice.push(TOKENIZER.encode("世")[0])[0] == ""
    assert choice.flush() == "\ufffd"


def test_a_stop_string_is_cut_even_within_a_token() -> None:
    assert "".join(pieces("say hello there", ("el",))[0]) == "say h"
    assert pieces("say hello there", ("el",))[1]


def test_a_beginning_is_held_and_flushed() -> None:
    shown, stopped = pieces("ABCDEF", ("DEFG",))
    assert shown == ["A", "B", "C", "", "", "", "DEF"]
    assert not stopped


@pytest.mark.parametrize(
    ("min_tokens", "expected"), [(0, "x"), (3, "x"), (4, "xa"), (5, "xaa"), (6, "xaaaay"), (7, "xaaaay")]
)
def test_a_stop_before_min_tokens_is_text_and_later_ones_may_overlap_it(min_tokens: int, expected: str) -> None:
    assert "".join(pieces("xaaaay", ("aa",), min_tokens)[0]) == expected


def test_watch_says_what_push_says() -> None:
    watcher = ChoiceText(TOKENIZER, ("ll",), 0)
    assert [watcher.watch(token) for token in TOKENIZER.encode("xhello")] == [False, True]


def test_a_continuation_keeps_the_space_that_a_beginning_drops() -> None:
    marked = Tokenizer.from_gguf(sentencepiece_metadata(prefix=True))
    ids = marked.encode("the the", add_bos=False)
    for prompt, shown in (([], "the the"), ([1], "the the"), (ids, " the the")):
        choice = ChoiceText(marked, (), 0, prompt=prompt)
        assert "".join([*(choice.push(token)[0] for token in ids), choice.flush()]) == shown
    stopped = ChoiceText(marked, (" the",), 0, prompt=ids)
    assert stopped.watch(ids[0])
