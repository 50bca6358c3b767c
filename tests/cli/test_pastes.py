"""Pasted texts: short ones as they are, long ones by words that stand for them; nothing behind a paste is taken."""

from __future__ import annotations

import os

import pytest

from offramp.cli.chat import pastes
from offramp.cli.chat.pastes import MAX_SHOWN_CHARACTERS, MAX_SHOWN_LINES, Pastes, read_paste

LONG = "\n".join(str(number) for number in range(MAX_SHOWN_LINES + 1))


@pytest.mark.parametrize("text", ["", "one", "a\nb", "\n".join("x" * MAX_SHOWN_LINES), "x" * MAX_SHOWN_CHARACTERS])
def test_short_ones_are_shown(text: str) -> None:
    held = Pastes()
    assert held.shown(text) == text
    assert held.expand(text) == text


@pytest.mark.parametrize("text", [LONG, "x" * (MAX_SHOWN_CHARACTERS + 1), "a\0b"])
def test_long_ones_are_counted_and_put_back(text: str) -> None:
    held = Pastes()
    words = held.shown(text)
    assert words.startswith("[pasted ")
    assert len(words) < 60
    assert held.expand(f"look: {words}!") == f"look: {text}!"
    assert held.shown(text) == words


def test_two_of_the_same_size_are_told_apart() -> None:
    held = Pastes()
    other = LONG.replace("1", "7")
    first, second = held.shown(LONG), held.shown(other)
    assert first == "[pasted 11 lines, 22 characters]"
    assert second == "[pasted text 2: 11 lines, 22 characters]"
    assert held.expand(f"{second} {first}") == f"{other} {LONG}"


def test_words_within_a_pasted_text_stay() -> None:
    held = Pastes()
    words = held.shown(LONG)
    quoting = held.shown(f"{words}\n{LONG}")
    assert held.expand(quoting) == f"{words}\n{LONG}"


def test_nothing_behind_the_end_is_taken() -> None:
    source, sink = os.pipe()
    os.write(sink, "é\r\nb\rc\x1b[201~next\r".encode())
    assert read_paste(source) == "é\nb\nc"
    assert os.read(source, 100) == b"next\r"
    os.close(sink)
    assert read_paste(source) == ""
    os.close(source)


def test_a_paste_without_an_end_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pastes, "STALL_SECONDS", 0.01)
    source, sink = os.pipe()
    os.write(sink, b"half")
    assert read_paste(source) == "half"
    for descriptor in (source, sink):
        os.close(descriptor)
